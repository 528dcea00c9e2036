"""`continuum clean`: what filters would do with the first pairs, of files that are here."""

from __future__ import annotations

import pytest
import yaml

from workflow_src.cli import main

DOWNLOAD = {"url": "https://example.org/corpora/pairs.tsv"}


@pytest.fixture
def mine(folder, monkeypatch):
    """A function that writes mine.yaml with a recipe's `clean`, on a table that is downloaded."""
    monkeypatch.setenv("COLUMNS", "200")

    def write(clean):
        columns = {"columns": {"de": 0, "en": 1}, "score_column": 2}
        table = [{"table": "pairs", **columns, **({} if "score" in clean else {"minimum_score": 0})}]
        texts = [{"texts": {"de": "x.de", "en": "x.en"}}]
        dataset = {"name": "mine", "languages": ["de", "en"], "files": {"pairs": DOWNLOAD}, "train": table}
        recipe = {"name": "mine", "dataset": dataset | {"dev": texts, "test": texts}, "clean": clean}
        raw = {"experiment": "mine", "extends": "smoke", "recipe": recipe}
        (folder / "mine.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))

    return write


def clean(capsys, *words, code=0):
    if code:
        with pytest.raises(SystemExit) as stop:
            main(["clean", *words])
        return str(stop.value.code)
    main(["clean", *words])
    return capsys.readouterr().out


def test_counts_and_examples_of_the_first_pairs(mine, tmp_path, capsys):
    mine({"garbled": {}, "copies": {}, "score": {"minimum": 0.5}})
    mirror = tmp_path / "downloads/example.org/corpora"
    mirror.mkdir(parents=True)
    rows = ["schÃ¶n\tnice\t1", "Open [b]\tOpen [b]\t1", "gut\tgood\t0.1", "kaum\thardly\t1", "nie\tnie\t1"]
    (mirror / "pairs.tsv").write_text("\n".join(rows) + "\n")
    output = clean(capsys, "mine.yaml", "--preview", "4")
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in output.splitlines() if line[0] == "│"]
    assert cells == [
        ["garbled", "4", "0", "1", ""],
        ["copies", "4", "1", "0", "equal 1"],
        ["score", "3", "1", "0", "minimum 1"],
    ]
    assert "garbled, repaired: pairs, line 1\n    schÃ¶n\n    nice\n  → schön\n  → nice\n" in output
    assert "copies, equal: pairs, line 2\n    Open [b]\n    Open [b]\n" in output
    assert "score, minimum 0.5 (0.1): pairs, line 3\n" in output
    assert output.endswith("Of the first 4 pairs, 2 are kept.\n")
    # As the other commands have it; nothing is written.
    assert clean(capsys, "mine.yaml", "--preview", "4", "--examples", "0").count("line") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["downloads", "mine.yaml"]


def test_repetitions_further_on_are_named_where_there_may_be_some(mine, tmp_path, capsys):
    mine({"repeated": {}})
    (tmp_path / "downloads/example.org/corpora").mkdir(parents=True)
    (tmp_path / "downloads/example.org/corpora/pairs.tsv").write_text("ja\tyes\t1\nnein\tno\t1\n")
    unseen = "Pairs that are repeated further on are not seen."
    assert clean(capsys, "mine.yaml", "--preview", "1").endswith(f"Of the first 1 pairs, 1 are kept. {unseen}\n")
    assert clean(capsys, "mine.yaml", "--preview", "2").endswith("Of the first 2 pairs, 2 are kept.\n")


def test_what_is_missing_is_one_sentence(mine, capsys):
    mine({"copies": {}})
    assert clean(capsys, "mine.yaml", code=1) == (
        "error: file pairs of dataset mine is neither in downloads nor in a mirror; fetch it by the target download of "
        "snakemake."
    )
    mine({})
    assert "recipe.clean: missing; name filters, such as " in clean(capsys, "mine.yaml", code=1)
    assert "--preview is 0; allowed: 1 or more." in clean(capsys, "mine.yaml", "--preview", "0", code=1)


def test_every_part_is_sampled_and_lines_are_those_of_its_files(mine, tmp_path, capsys):
    mine({"length": {"max_words": 3}})
    raw = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    names = ["short", "first", "second"]
    raw["recipe"]["dataset"] |= {
        "files": {},
        "train": [{"texts": {code: f"{name}.{code}" for code in ("de", "en")}} for name in names],
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    for name, count in zip(names, (2, 100, 100), strict=True):
        lines = [f"{name} {number}" + " and too many words" * (number == 3) for number in range(1, count + 1)]
        for code in ("de", "en"):
            (tmp_path / f"{name}.{code}").write_text("".join(f"{line}\n" for line in lines))
    output = clean(capsys, "mine.yaml", "--preview", "12")
    # What the short part lacks comes from the others: five lines of each.
    assert "Of the first 12 pairs of the 3 parts of train, 10 are kept." in output
    for name in names[1:]:
        assert f"length, max_words 3 (6 words): {name}.de, {name}.en, line 3\n    {name} 3 and" in output
