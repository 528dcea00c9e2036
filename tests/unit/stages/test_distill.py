"""Distillation on a GPU: the teacher's steps are captured, and the text is that of our own code."""

import json

import pretended_cuda
import pytest
from stage_words import distill_words


def test_a_gpu_distils_in_captured_graphs(tiny, teacher, run_stage, tmp_path):
    """Empty lines, which no graph computes, stay where they are."""
    lines = (tiny.corpus / "train.de").read_text(encoding="utf-8").splitlines()[:7]
    source = tmp_path / "train.de"
    source.write_text("".join(f"{line}\n" for line in [lines[0], "", *lines[1:]]), "utf-8")
    distilled, launches = {}, {}
    for engine in ("eager", "auto"):
        words = distill_words(teacher[1], tiny.folder, source, tmp_path / engine, beam=3, batch=5, engine=engine)
        words += ["--device", "cuda", "--precision", "float32", "--threads", "1"]
        with pretended_cuda.pretended() as machine:
            run_stage("distill", words)
            launches[engine] = machine.counts["graph launches"]
        distilled[engine] = [json.loads(line) for line in (tmp_path / engine).read_text("utf-8").splitlines()]
    assert launches["eager"] == 0 < launches["auto"]
    texts, scores = ({e: [line[key] for line in distilled[e]] for e in distilled} for key in ("text", "score"))
    assert texts["auto"] == texts["eager"] and len(texts["eager"]) == 8 and texts["eager"][1] == ""
    assert scores["auto"] == pytest.approx(scores["eager"], abs=1e-4)
