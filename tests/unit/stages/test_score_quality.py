"""The stage: alignment of its files, what it writes, what it refuses."""

import json
import re
import sys

import pytest

from workflow_src import jobs
from workflow_src.stages import score_quality

SETTINGS = {"source": "de", "target": "en", "generator": None}


@pytest.fixture
def files(tmp_path):
    def write(name, lines):
        path = tmp_path / name
        path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
        return path

    return write


def _words(files, hypotheses, references, sources, details=None, settings=SETTINGS):
    words = ["--settings", json.dumps(settings), "--hypotheses", str(files("hyp.txt", hypotheses))]
    words += ["--reference", str(files("ref.en", references)), "--source", str(files("src.de", sources))]
    if details is not None:
        words += ["--details", str(files("hyp.jsonl", details))]
    return [*words, "--output", str(files("out", []).with_name("quality.json"))]


def _run(words):
    jobs.start(score_quality.run, score_quality.make_parser(), words)
    return json.loads(open(words[-1], encoding="utf-8").read())


def test_scores_of_both_variants_and_details(files):
    details = [json.dumps({"score": -1.0, "steps": steps}) for steps in (1, 4)]
    # A line separator inside a sentence (U+2028) is no end of line.
    lines = ["the dog\u2028sees a big old house", "she reads books in the long evening"]
    found = _run(_words(files, [lines[0], "she she" + lines[1][3:]], lines, ["x", "y"], details))
    assert found["sentences"] == 2 and found["mean_steps"] == 2.5
    assert found["removed"]["bleu"] == pytest.approx(100) and found["kept"]["bleu"] < 100
    assert set(found["kept"]) == set(found["removed"])
    assert found["kept"]["validity"] is None
    assert set(found["provenance"]["inputs"]) == {"hypotheses", "reference", "source", "details"}


def test_validity_follows_the_direction(files, monkeypatch):
    class Grammar:
        def is_valid(self, german, english):
            return (german, english) == ("der Hund", "the dog")

    module = type(sys)("workflow_src.data.toy.grammar")
    module.ToyGrammar = Grammar
    monkeypatch.setitem(sys.modules, "workflow_src.data.toy.grammar", module)
    generated = SETTINGS | {"generator": {"train": 1}}
    forward = _words(
        files, ["the the dog", "the cat"], ["the dog", "the cat"], ["der Hund", "der Hund"], None, generated
    )
    found = _run(forward)
    assert (found["kept"]["validity"], found["removed"]["validity"]) == (0, 0.5)
    generated |= {"source": "en", "target": "de"}
    assert _run(_words(files, ["der Hund"], ["der Hund"], ["the dog"], None, generated))["kept"]["validity"] == 1


@pytest.mark.parametrize(
    ("hypotheses", "references", "sources", "details", "message"),
    [
        (["a"], ["a", "b"], ["x"], None, r"hyp.txt has 1, .*ref.en has 2"),
        (["a", "b"], ["a", "b"], ["x"], None, r"hyp.txt has 2, .*src.de has 1"),
        ([], [], [], None, r"hyp.txt is empty"),
        (["a"], ["a"], [b"\xff"], None, r"src.de is not UTF-8 in line 1"),
        (["a"], ["a"], ["x"], ["{broken"], r"line 1 of .*hyp.jsonl is not a JSON object"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(files, capsys, hypotheses, references, sources, details, message):
    words = _words(files, hypotheses, references, sources, details)
    with pytest.raises(SystemExit) as left:
        _run(words)
    assert left.value.code == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: ") and "\n" not in said
    assert re.search(message, said)
    with pytest.raises(FileNotFoundError):
        open(words[-1])
