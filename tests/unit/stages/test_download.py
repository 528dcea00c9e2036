"""The download stage: from a definition and a mirror to raw text and raw.json."""

import hashlib
import io
import json
import zipfile

import pytest
from stage_words import start_stage

from workflow_src.data.drops import left_out
from workflow_src.stages import download as stage

URL = "https://example.org/corpora/pairs.zip"
PAIRS = [(f"Satz {n}.", f"Sentence {n}.") for n in range(50)]


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("deu.txt", "".join(f"{b}\t{a}\tsource\n" for a, b in PAIRS))
    return buffer.getvalue()


CONTENT = archive()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mirror/example.org/corpora/pairs.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return tmp_path / "mirror"


def settings(**change):
    return {
        "name": "mini",
        "languages": ["de", "en"],
        "files": {"pairs": {"url": URL, "sha256": hashlib.sha256(CONTENT).hexdigest()}},
        "train": [{"table": "pairs!deu.txt", "columns": {"en": 0, "de": 1}}],
    } | change


def words(dataset, *options, languages=("de", "en")):
    described = ["--settings", json.dumps(dataset), "--languages", *languages]
    return [*described, "--summary", "results/mini/raw/raw.json", *options]


def test_raw_text_and_summary(tmp_path, mirror):
    start_stage(stage, words(settings(), "--mirrors", str(mirror), "--log", "logs/download.log"))
    raw = tmp_path / "results/mini/raw"
    summary = json.loads((raw / "raw.json").read_text())
    assert summary["pairs"] == {"train": 50}
    sides = [(raw / f"train.{code}").read_text().splitlines() for code in ("de", "en")]
    assert list(zip(*sides, strict=True)) == PAIRS
    assert {path.name for path in raw.iterdir()} == {*summary["sha256"], "raw.json"}
    for name, digest in summary["sha256"].items():
        assert hashlib.sha256((raw / name).read_bytes()).hexdigest() == digest
    assert summary["downloads"]["pairs"]["url"] == URL and summary["downloads"]["pairs"]["check"] == "sha256"
    assert "mini de-en: train 50 pairs" in (tmp_path / "logs/download.log").read_text()


def test_every_test_set_has_texts_and_further_references_of_its_own(tmp_path, mirror):
    for name, line in {"x.de": "eins", "a.en": "one", "b.en": "1"}.items():
        (tmp_path / name).write_text(f"{line}\n")
    one, two = ({"texts": {"de": "x.de", "en": names}} for names in ("a.en", ["a.en", "b.en"]))
    start_stage(stage, words(settings(files={}, train=[one], dev=[two], test={"news": [one], "talks": [two, two]})))
    raw = tmp_path / "results/mini/raw"
    summary = json.loads((raw / "raw.json").read_text())
    assert summary["pairs"] == {"train": 1, "dev": 1, "news": 1, "talks": 2}
    assert summary["references"] == {"dev": 2, "talks": 2}
    assert (raw / "talks.reference-2.en").read_text() == "1\n1\n" and (raw / "talks.en").read_text() == "one\none\n"
    assert {path.name for path in raw.iterdir()} == {*summary["sha256"], "raw.json"}
    assert not list(raw.glob("news.reference*"))


def test_rows_left_out_are_counted_and_dev_and_test_know_their_lines(tmp_path, mirror, capsys):
    (tmp_path / "x.tsv").write_text("eins\tone\t0.2\nzwei\ttwo\t0.8\n")
    part = {"table": "x.tsv", "columns": {"de": 0, "en": 1}, "score_column": 2, "minimum_score": 0.5}
    start_stage(stage, words(settings(files={}, train=[part], dev=[part], test=[part])))
    summary = json.loads((tmp_path / "results/mini/raw/raw.json").read_text())
    assert summary["dropped"] == {key: {"minimum_score": 1} for key in ("train", "dev", "test")}
    assert summary["places"] == {key: [[0, "x.tsv", "x.tsv", 2]] for key in ("dev", "test")}
    assert f"train 1{left_out({'minimum_score': 1})}, dev 1" in capsys.readouterr().err


def test_what_records_and_memories_lack_is_counted_and_places_are_lines_of_their_files(tmp_path, mirror, capsys):
    segments = "<tuv xml:lang='de'><seg>Satz <ph>%1</ph></seg></tuv><tuv xml:lang='en-GB'><seg>Sentence</seg></tuv>"
    units = f"<tu>{segments}</tu>\n<tu><tuv xml:lang='de'><seg>x</seg></tuv></tu>\n<tu>\n{segments}</tu>\n"
    (tmp_path / "x.tmx").write_text(f"<tmx version='1.4'>\n<header/><body>\n{units}</body></tmx>")
    (tmp_path / "x.jsonl").write_text('{"t": {"de": "Satz", "en": null}}\n{"t": {"de": "Satz", "en": "Sentence"}}\n')
    memory, records = {"tmx": "x.tmx"}, {"records": "x.jsonl", "columns": {"de": "t.de", "en": "t.en"}}
    start_stage(stage, words(settings(files={}, train=[memory, records], dev=[memory], test=[records])))
    raw = tmp_path / "results/mini/raw"
    summary = json.loads((raw / "raw.json").read_text())
    assert (raw / "train.de").read_text() == "Satz\n" * 3 and (raw / "train.en").read_text() == "Sentence\n" * 3
    assert summary["pairs"] == {"train": 3, "dev": 2, "test": 1}
    assert summary["dropped"] == {"train": {"untranslated": 2}, "dev": {"untranslated": 1}, "test": {"untranslated": 1}}
    assert summary["inline_elements"] == {"train": 2, "dev": 2}
    assert [run[1:] for run in summary["places"]["dev"]] == [["x.tmx", "x.tmx", 3], ["x.tmx", "x.tmx", 5]]
    assert [run[1:] for run in summary["places"]["test"]] == [["x.jsonl", "x.jsonl", 2]]
    assert {"x.tmx", "x.jsonl"} <= summary["provenance"]["inputs"].keys()
    assert f"train 3{left_out({'untranslated': 2}, 2)}, dev 2" in capsys.readouterr().err


def test_mirrors_of_the_environment_come_first(tmp_path, mirror, monkeypatch, capsys):
    monkeypatch.setenv("CONTINUUM_MIRRORS", f"{tmp_path / 'nowhere'}:{mirror}")
    start_stage(stage, words(settings(), "--mirrors", str(tmp_path / "other")))
    message = capsys.readouterr().err
    assert f"mirror folder {tmp_path / 'nowhere'} does not exist" in message and f"found in mirror {mirror}" in message


def test_an_unknown_sum_is_refused_unless_that_is_allowed(tmp_path, mirror, refused):
    mirrors = ("--mirrors", str(mirror))
    unknown = settings(files={"pairs": {"url": URL}})
    refused("download", words(unknown, *mirrors), mentions=(hashlib.sha256(CONTENT).hexdigest(),))
    assert not (tmp_path / "results/mini/raw").exists() or not list((tmp_path / "results/mini/raw").iterdir())
    start_stage(stage, words(unknown, *mirrors, "--allow-unpinned", "True"))
    assert json.loads((tmp_path / "results/mini/raw/raw.json").read_text())["downloads"]["pairs"]["check"] == "none"


def test_bad_input_leaves_no_half_written_corpus(tmp_path, mirror, refused):
    mirrors = ("--mirrors", str(mirror))
    part = {"texts": {"de": "x.de", "en": "x.en"}}
    missing_test = settings(files={}, train=[part], dev=[part], test=[{"texts": {"de": "x.de", "en": "y.en"}}])
    (tmp_path / "x.de").write_text("eins\nzwei\n")
    (tmp_path / "x.en").write_text("one\ntwo\n")
    (tmp_path / "y.en").write_text("one\n")
    assert "x.de has 2 lines, but y.en has 1" in str(refused("download", words(missing_test)))
    refused("download", words(settings(), *mirrors, languages=("de", "de")), setting="languages", value=["de", "de"])
    refused("download", words(settings(trian=[]), *mirrors), setting="settings.trian")
    folder = tmp_path / "results/mini/raw"
    assert not folder.exists() or not list(folder.iterdir())
