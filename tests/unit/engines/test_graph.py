"""Searches of graphs in ONNX Runtime, against our own code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exported_searches import check_outputs_and_scores
from miniatures import dat, tokens

from workflow_src import registry
from workflow_src.decoding.ngram import estimate
from workflow_src.spec import MODEL

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 9
SOURCE = tokens([3, 1, 5, 2], SIZE, end=True)
# Search, settings of the model and of the search.
CASES = {
    "graph-path": ("graph-path", {}, {}),
    "graph-path, positions": ("graph-path", {"inputs": "positions"}, {"lookahead": 0.0, "merge_equal": True}),
    "graph-viterbi": ("graph-viterbi", {}, {"length_penalty": 2.0}),
    "graph-beam": ("graph-beam", {}, {"beam": 3, "word_bonus": 0.5, "language_model": "lm"}),
}
# Graphs of several sentences, which have padding, take as long to export again.
TOGETHER = ("graph-path", "graph-beam")
LENGTHS = np.random.default_rng(0).integers(1, 9, 60)


class LanguageModel:
    scorer = estimate(np.random.default_rng(1).integers(3, SIZE, LENGTHS.sum()), np.cumsum([0, *LENGTHS]), SIZE, 3)


@pytest.mark.graphs
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("graphs")
def test_outputs_and_scores_are_those_of_our_own_code(case):
    from sessions import opened

    name, model, fields = CASES[case]
    search = registry.searches()[name]
    network = dat(SIZE, SIZE, seed=3, vertices=3.0, **model).float()
    with torch.no_grad():
        network.transition.query.weight.mul_(4)
    settings = search.settings(**fields)
    assert registry.engines()["onnxruntime"].serves(registry.families()["dat"], search, settings) is None
    networks = {MODEL: network}
    if "language_model" in fields:
        networks["language_model"] = LanguageModel()
    engine = opened({"dat": network})
    check_outputs_and_scores(engine, networks, SOURCE, settings, together=case in TOGETHER)
