"""`continuum verify`: files of a real run are followed back to their inputs; a changed one is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from workflow_src import cli
from workflow_src.errors import InputError
from workflow_src.records.atomic import read_json, sha256, write_json
from workflow_src.records.provenance import described_by, digests, provenance, write_record
from workflow_src.records.verify import verify


def first_mismatch(folder: Path) -> str:
    """The first word of the sentence about what does not match; "" where everything does."""
    try:
        verify(folder)
    except ValueError as failure:
        assert "\n" not in str(failure)
        return str(failure).split(" ")[0]
    return ""


def counted(folder: str | Path) -> tuple[int, int, int, int]:
    """Of what matches, by the summary: records, files that they describe, originals, and files that none describes."""
    summary = verify(folder).removeprefix(f"{folder}: ")
    counts = {words: int(count) for count, words in re.findall(r"(\d+) (records|files that|original)", summary)}
    extra = re.search(r"(\d+) files? (?:is|are) described by none", summary)
    return counts["records"], counts["files that"], counts.get("original", 0), int(extra[1]) if extra else 0


# A chain made by hand: an original, a record for it, and one built on that
WHOLE = (2, 1, 1, 0)


@pytest.fixture
def chain(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    data, end = Path("results/data"), Path("results/end")
    for folder in (data, end):
        folder.mkdir(parents=True)
    Path("mine.txt").write_text("one\n")
    (data / "text.txt").write_text("ONE\n")
    write_record(data / "text.json", {"upper": True}, {"own": "mine.txt"}, ["text.txt"])
    write_json(end / "score.json", {"score": 1.5, "provenance": provenance({}, {"text": data / "text.txt"})})
    return tmp_path


def test_what_matches_is_counted_from_any_folder(chain, monkeypatch, capsys):
    assert verify("results/end") == "results/end: 2 records match, with 1 files that they describe, 1 original file"
    end = Path("results/end")
    write_json(end / "report/provenance.json", {"provenance": provenance({}, {"score": end / "score.json"})})
    monkeypatch.chdir("/")
    cli.main(["verify", str(chain / "results/end"), str(chain / "results/data")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1].split()[0] for line in lines] == ["3", "1"]


@pytest.mark.parametrize("folder", ["end", "data"])
def test_what_no_run_has_ended_with_is_not_finished(chain, folder, capsys):
    """All files that exist match; which ones are missing is unknown."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["verify", f"results/{folder}"])
    assert exit_info.value.code.startswith(
        f"error: results/{folder} is not finished: there is no report/provenance.json, which a run writes at its end, "
    )
    assert capsys.readouterr().out.startswith(f"results/{folder}: ")


def test_the_command_ends_with_1_and_one_sentence(chain, capsys):
    Path("results/data/text.txt").write_text("TWO\n")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["verify", "results/end"])
    actual, expected = sha256("results/data/text.txt"), read_json("results/data/text.json")["provenance"]["files"]
    assert exit_info.value.code.startswith("error: results/data/text.txt was changed after it was made: ")
    assert actual in exit_info.value.code and expected["text.txt"] in exit_info.value.code
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda: Path("mine.txt").write_text("two\n"), "mine.txt was changed (SHA-256 "),
        (lambda: Path("mine.txt").unlink(), "mine.txt is missing after results/data/text.json was made from it; "),
        (lambda: Path("results/data/text.txt").unlink(), "results/data/text.txt is missing, which results/data/text"),
        (lambda: Path("results/data/text.json").unlink(), "results/data/text.json is missing"),
        (lambda: Path("results/data/text.json").write_text("{"), "results/data/text.json was changed"),
        (lambda: Path("results/data/text.json").write_text("{}"), "results/data/text.json carries no checksum"),
        (lambda: Path("results/end/score.json").write_text("{}"), "results/end/score.json carries no checksum"),
        (lambda: Path("results/end/more.json").write_text("{}"), "results/end/more.json carries no checksum"),
        (lambda: reformat(2), "results/end/score.json has provenance of format 2"),
        (lambda: forge(record=7), "results/end/score.json carries no checksum"),
        (lambda: forge(record=None), "results/end/score.json carries no checksum"),
        (lambda: forge(path=["a"]), "results/end/score.json carries no checksum"),
        (lambda: forge(sha256={}), "results/end/score.json carries no checksum"),
        (lambda: forge(record="results/no\0ne.json"), "results/no\0ne.json is missing"),
        (lambda: forge(path="a" * 999), f"{'a' * 999} is missing, which results/end/score.json"),
        (lambda: nested("results/end/score.json", 500), "results/end/score.json carries no checksum"),
        (lambda: nested("results/end/score.json", 10**5), "results/end/score.json was changed"),
        (lambda: nested("results/data/text.json", 10**5), "results/data/text.json was changed"),
        (lambda: replaced("results/data/text.json"), "results/data/text.json is a folder, not"),
        (lambda: replaced("results/data/text.txt"), "results/data/text.txt is missing, which results/data/text.json "),
    ],
)
def test_what_does_not_match_is_reported(chain, spoil, sentence):
    spoil()
    with pytest.raises(InputError) as failure:
        verify("results/end")
    assert str(failure.value).startswith(sentence) and "\n" not in str(failure.value)
    # One sentence, and no other one in it.
    assert not str(failure.value).endswith("..") and ".;" not in str(failure.value)


def forge(**values) -> None:
    """A record whose own checksum is right, with an entry of its input that no program writes."""
    record = read_json("results/end/score.json")
    record["provenance"]["inputs"]["text"] |= values
    write_json("results/end/score.json", record)


def reformat(number: int) -> None:
    """A record that another version of the project made."""
    record = read_json("results/end/score.json")
    record["provenance"]["format"] = number
    write_json("results/end/score.json", record)


def nested(path: str, depth: int) -> None:
    Path(path).write_text('{"provenance": {"checksum": ' + "[" * depth + "]" * depth + "}}")


def replaced(path: str) -> None:
    Path(path).unlink()
    Path(path).mkdir()


def test_a_folder_that_is_called_as_records_are_is_looked_into(chain):
    Path("results/end").rename("results/system.json")
    assert counted("results")[0] == 2


def test_results_are_found_through_links(chain, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("aside")
    for name in ("link", "results"):
        (elsewhere / name).symlink_to(chain / "results/end")
        assert counted(elsewhere / name) == WHOLE
    monkeypatch.chdir(elsewhere)
    assert counted("link") == WHOLE
    monkeypatch.chdir(elsewhere / "link")
    assert counted(".") == WHOLE
    Path(chain / "results/data/text.txt").write_text("TWO\n")
    assert first_mismatch(elsewhere / "link") == "results/data/text.txt"
    # The whole of `results`, or the experiment in it, may itself be a link to another disk.
    (chain / "results/data/text.txt").write_text("ONE\n")
    shutil.move(chain / "results", elsewhere / "disk")
    (chain / "results").symlink_to(elsewhere / "disk")
    assert counted(chain / "results/end") == WHOLE
    shutil.move(elsewhere / "disk/end", elsewhere / "moved")
    (elsewhere / "disk/end").symlink_to(elsewhere / "moved")
    assert counted(chain / "results/end") == WHOLE


def test_an_experiment_may_be_called_results(chain):
    Path("results/end").rename("results/results")
    assert counted("results/results") == WHOLE
    assert counted("results") == WHOLE
    Path("results/data/text.txt").unlink()
    assert first_mismatch("results/results") == "results/data/text.txt"
    # Nor does a folder of that name further up lead astray.
    Path("results/data/text.txt").write_text("ONE\n")
    shutil.copytree("results", "results/copy/results")
    assert first_mismatch("results/copy/results/results") == "mine.txt"
    shutil.copy("mine.txt", "results/copy")
    assert counted("results/copy/results/results") == WHOLE


def test_files_that_no_record_describes_are_counted(chain):
    for name in ("notes.txt", ".hidden.partial"):
        Path("results/end", name).write_text("x")
    assert counted("results/end") == (*WHOLE[:3], 1)
    assert verify("results/end").endswith(", 1 file is described by none (results/end/notes.txt)")
    # As where the last record was removed.
    Path("results/data/text.json").unlink()
    Path("results/end/score.json").rename("results/data/score.txt")
    write_record("results/data/own.json", {}, {}, ["score.txt"])
    assert verify("results/data").endswith(", 1 file is described by none (results/data/text.txt)")


def test_a_file_of_a_library_may_be_json_and_an_original_may_lie_with_the_results(chain):
    Path("results/end/own.txt").write_text("x")
    Path("results/end/vocabulary.json").write_text("[]")
    write_record("results/end/model.json", {}, {"own": "results/end/own.txt"}, ["vocabulary.json"])
    assert counted("results/end") == (3, 2, 2, 0)
    Path("results/end/vocabulary.json").write_text("{}")
    assert first_mismatch("results/end") == "results/end/vocabulary.json"


def test_a_missing_record_is_named_before_what_it_vouched_for(chain):
    Path("results/data/a-vocabulary.json").write_text("[]")
    write_record("results/data/model.json", {}, {"own": "mine.txt"}, ["a-vocabulary.json"])
    write_json("results/end/last.json", {"provenance": provenance({}, {"model": "results/data/model.json"})})
    assert first_mismatch("results/end") == ""
    Path("results/data/model.json").unlink()
    for folder in ("results/end", "results/data"):
        Path(folder, "b-vocabulary.json").write_text("[]")
    assert first_mismatch("results/end") == "results/data/model.json"


def test_made_from_something_else_than_lies_there_now(chain):
    Path("results/data/text.txt").write_text("TWO\n")
    write_record("results/data/text.json", {"upper": True}, {"own": "mine.txt"}, ["text.txt"])
    with pytest.raises(InputError, match=r"^results/end/score.json .* another results/data/text.txt than "):
        verify("results/end")


@pytest.mark.parametrize(
    ("lost", "target"),
    [("text.txt", "text.json"), ("text.json", "text.json")],
)
def test_the_command_that_makes_a_lost_file_is_named(chain, lost, target):
    Path("results/data", lost).unlink()
    with pytest.raises(InputError, match=f"`snakemake results/data/{target} "):
        verify("results/end")


def test_the_first_in_the_order_of_the_flow_is_named(chain):
    changes = ["results/data/text.json", "results/data/text.txt", "results/end/score.json"]
    for path in reversed(changes):
        content = Path(path).read_bytes()
        Path(path).write_bytes(content.replace(b"1", b"2").replace(b"O", b"P").replace(b"upper", b"lower"))
        assert first_mismatch("results/end") == path


def test_a_record_may_not_be_rewritten_by_hand(chain):
    record = read_json("results/end/score.json")
    Path("results/end/score.json").write_text(json.dumps(record | {"score": 99}, indent=1, sort_keys=True) + "\n")
    assert first_mismatch("results/end") == "results/end/score.json"
    # Another form of the same content is a change too: the file is not the one that was written.
    Path("results/end/score.json").write_text(json.dumps(record))
    assert first_mismatch("results/end") == "results/end/score.json"


def test_downloads_may_be_removed_but_not_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("results/r").mkdir(parents=True)
    Path("got").write_text("x")
    record = provenance({})
    record["inputs"]["f"] = {"path": "got", "sha256": sha256("got"), "url": "http://a/got"}
    write_json("results/r/raw.json", {"provenance": record})
    assert verify("results/r").endswith(", 1 original file")
    Path("got").write_text("y")
    assert first_mismatch("results/r") == "got"
    Path("got").unlink()
    assert verify("results/r").endswith("describe, 1 download is no longer there")


def test_folders_that_hold_no_results(tmp_path):
    with pytest.raises(InputError, match=r"none .*exist.*; name results/EXPERIMENT"):
        verify(tmp_path / "none")
    with pytest.raises(InputError, match=f"^{tmp_path} holds no record"):
        verify(tmp_path)


def test_records_of_files(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    assert described_by(tmp_path / "a.txt") is None
    (tmp_path / "broken.json").write_text("{")
    write_record(tmp_path / "z.json", {}, {}, ["a.txt"])
    assert described_by(tmp_path / "a.txt") == described_by(tmp_path / "z.json") == tmp_path / "z.json"
    assert digests(tmp_path, ["a.txt"]) == {"a.txt": sha256(tmp_path / "a.txt")}


# A whole run


@pytest.fixture(scope="module")
def run(smoke_run, tmp_path_factory) -> Path:
    """A copy of a finished run, to be damaged."""
    folder = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(smoke_run / "results", folder / "results")
    return folder


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in (run / "results").rglob("*") if path.is_file() and path.name[0] != ".")


@pytest.mark.slow
def test_a_finished_run_matches_and_every_file_of_it_is_checked(run):
    assert counted(run / "results/smoke")[0] == 85
    paths = files_of(run)
    contents = {path: read_json(path) for path in paths if path.suffix == ".json"}
    blocks = {path: content["provenance"] for path, content in contents.items() if "provenance" in content}
    described = {path.parent / name for path, block in blocks.items() for name in block["files"]}
    assert set(paths) == described | set(blocks)
    for path, block in blocks.items():
        assert {"settings", "inputs", "files", "versions", "commit", "hardware", "created"} <= set(block), path
        assert block["inputs"] or path.name == "raw.json", path
        assert all("record" in entry for entry in block["inputs"].values()), path


def one_of_every_kind(run: Path) -> list[Path]:
    """The test above sees that every file is checked; files of one stage are checked alike."""
    kinds = {(path.relative_to(run).parts[2], path.name): path for path in files_of(run)}
    assert len(kinds) > 60
    return list(kinds.values())


@pytest.mark.slow
def test_a_flipped_bit_is_named(run):
    for path in one_of_every_kind(run):
        content = path.read_bytes()
        offset = len(content) // 2
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        assert first_mismatch(run / "results/smoke") == path.relative_to(run).as_posix()
        path.write_bytes(content)
    assert first_mismatch(run / "results/smoke") == ""


@pytest.mark.slow
def test_a_missing_file_is_named(run):
    for path in one_of_every_kind(run):
        name = path.relative_to(run).as_posix()
        # No record has a checksum of these: without the first there is no report, and nothing is made from the second,
        # which shows that models can read the test set.
        if name in ("results/smoke/report/provenance.json", "results/smoke/encoded/raw/test.json"):
            continue
        path.rename(path.with_name("aside"))
        assert first_mismatch(run / "results/smoke") == name
        path.with_name("aside").rename(path)
    assert first_mismatch(run / "results/smoke") == ""
