"""The stage score_quality: alignment of its files, its output, refusals."""

import json
import re
from itertools import groupby

import pytest
import sacrebleu
from stage_words import start_stage

from workflow_src.data.lines import EMPTY
from workflow_src.stages import score_quality

SETTINGS = {"corpus": {"source": "de", "target": "en"}}


@pytest.fixture
def files(tmp_path):
    def write(name, lines):
        path = tmp_path / name
        path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
        return path

    return write


def _words(files, hypotheses, references, sources, details=None, settings=SETTINGS):
    if details is None:
        details = [json.dumps({"without_repeated_subwords": line}) for line in hypotheses]
    words = ["--settings", json.dumps(settings), "--hypotheses", str(files("hyp.txt", hypotheses))]
    words += ["--reference", str(files("ref.en", references)), "--source", str(files("src.de", sources))]
    words += ["--details", str(files("hyp.jsonl", details))]
    return [*words, "--output", str(files("out", []).with_name("quality.json"))]


def _run(words):
    start_stage(score_quality, words)
    return json.loads(open(words[-1], encoding="utf-8").read())


def test_scores_of_all_variants_and_details(files):
    # A line separator inside a sentence (U+2028) is no end of line.
    lines = ["the dog\u2028sees a big old house", "she reads books in the long evening"]
    joined = [lines[0].replace("house", "hou"), lines[1]]
    details = [
        json.dumps({"score": -1.0, "steps": steps, "without_repeated_subwords": text}, ensure_ascii=False)
        for steps, text in zip((1, 4), joined, strict=True)
    ]
    quality = _run(_words(files, [lines[0], "she she" + lines[1][3:]], lines, ["x", "y"], details))
    assert quality["sentences"] == 2 and quality["mean_steps"] == 2.5
    assert quality["without_repeated_words"]["bleu"] == pytest.approx(100) and quality["kept"]["bleu"] < 100
    assert quality["without_repeated_subwords"]["bleu"] == sacrebleu.corpus_bleu(joined, [lines]).score < 100
    assert set(quality["kept"]) == set(quality["without_repeated_words"]) == set(quality["without_repeated_subwords"])
    assert quality["kept"]["validity"] is None
    assert set(quality["provenance"]["inputs"]) == {"hypotheses", "reference", "source", "details"}


def test_several_references_are_scored_together(files):
    lines = ["the dog sees a big old house", "she reads books in the long evening"]
    second_reference = ["the dog looks at a large old house", "in the evening she reads"]
    words = _words(files, lines, second_reference, ["x", "y"])
    index = words.index("--reference") + 1
    words.insert(index + 1, str(files("ref2.en", [lines[0], ""])))
    quality = _run(words)
    assert quality["kept"]["bleu"] == sacrebleu.corpus_bleu(lines, [second_reference, [lines[0], None]]).score
    assert "nrefs:var" in quality["kept"]["bleu_signature"]
    assert {"reference", "reference 2"} <= set(quality["provenance"]["inputs"])
    # A decode that takes no steps.
    assert quality["mean_steps"] is None


DETAIL = {"without_repeated_subwords": "a"}


@pytest.mark.parametrize(
    ("hypotheses", "references", "sources", "details", "message"),
    [
        (["a"], ["a", "b"], ["x"], None, r"hyp.txt has 1 lines, .*ref.en has 2"),
        (["a", "b"], ["a", "b"], ["x"], None, r"hyp.txt has 2 lines, .*src.de has 1"),
        ([], [], [], None, rf"hyp.txt {EMPTY}"),
        (["a"], ["a"], [b"\xff"], None, r"src.de, line 1, .*UTF-8"),
        (["a"], ["a"], ["x"], ["{broken"], r"hyp.jsonl, line 1, .*JSON object"),
        (["a"], ["a"], ["x"], ["{}", "{}"], r"hyp.txt has 1 lines, .*hyp.jsonl has 2"),
        (["a"], ["a"], ["x"], ["{}"], r"hyp.jsonl, line 1, has no without_repeated_subwords"),
        (["a"], ["a"], ["x"], [json.dumps(DETAIL | {"steps": "4"})], r"hyp.jsonl, line 1, has steps '4'"),
        (["a"], ["a"], ["x"], [json.dumps(DETAIL | {"placeholders": [1]})], r"hyp.jsonl, line 1, has placeholders"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    files, refused, tmp_path, hypotheses, references, sources, details, message
):
    words = _words(files, hypotheses, references, sources, details)
    assert re.search(message, str(refused("score_quality", words)))
    assert not (tmp_path / "quality.json").exists()


def test_translations_are_scored_without_repeated_subwords(tiny, tiny_bundles, run_stage, tmp_path):
    """From decoding to scores, against removal on the lines of pieces and sacreBLEU itself."""
    source = tiny.corpus / "dev.de"
    words = ["--settings", json.dumps({"search": "prior-mean"}), "--bundle", str(tiny_bundles["lvm"])]
    words += ["--device", "cpu", "--source", str(source)]
    run_stage("decode", [*words, "--output", str(tmp_path / "dev.txt")])
    details = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    runs = [[piece for piece, _ in groupby(line["subwords"])] for line in details]
    joined = ["".join(pieces).replace("▁", " ").strip() for pieces in runs]
    assert [line["without_repeated_subwords"] for line in details] == joined
    # The miniature hardly learnt anything: it repeats itself.
    assert joined != (tmp_path / "dev.txt").read_text().splitlines()
    # The remaining text is the reference: other texts have none of the miniature's words.
    (tmp_path / "reference").write_text("".join(f"{line}\n" for line in joined))
    words = ["--settings", json.dumps(SETTINGS), "--source", str(source), "--reference", str(tmp_path / "reference")]
    words += ["--hypotheses", str(tmp_path / "dev.txt"), "--details", str(tmp_path / "dev.jsonl")]
    quality = _run([*words, "--output", str(tmp_path / "quality.json")])
    assert quality["without_repeated_subwords"]["chrf"] == 100 > quality["kept"]["chrf"]


def test_what_became_of_placeholders_is_summed(files, capsys):
    lines = ["the dog", "the %1"]
    counts = [{"spans": 2, "missing": 1, "dropped": 0}, {"spans": 1, "missing": 0, "dropped": 2}]
    details = [
        json.dumps({"without_repeated_subwords": line, "placeholders": outcomes})
        for line, outcomes in zip(lines, counts, strict=True)
    ]
    assert _run(_words(files, lines, lines, ["a", "b"], details))["placeholders"] == {
        "spans": 3,
        "missing": 1,
        "dropped": 2,
    }
    message = capsys.readouterr().err
    assert all(count in message for count in ("3 placeholders", "1 missing", "2 dropped"))
    assert "placeholders" not in _run(_words(files, lines, lines, ["a", "b"]))
