"""Searches with latents that determine lengths in ONNX Runtime, against our own code: every step has its own length."""

from __future__ import annotations

import pytest
from exported_searches import check_outputs_and_scores
from miniatures import lanmt, refiner, tokens

from workflow_src import registry
from workflow_src.spec import MODEL, REFINER

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 9
SOURCE = tokens([3, 1, 5, 2], SIZE, end=True)
# One layer each: what takes time is the exporter, which goes from operator to operator.
# The prior mean's graph is a part of every other.
CASES = {
    "delta": {"steps": 2},
    "score": {"steps": 1, "length_quantile": 0.8, "lengthening": 0.3},
    "npd": {"draws": 3, "temperature": 3.0},
}
# With the decoder of the authors' released code, and its place for the length.
RELEASED = {"length_reads": "states", "decoder_input": "scaled", "decoder_skip": True, "first_position": 0}
# Outputs of this model leave positions empty before the last step, which a posterior must not read.
VARIANTS = {"score": RELEASED, "delta": {"seed": 3}}


@pytest.mark.graphs
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("graphs")
def test_outputs_and_scores_are_those_of_our_own_code(case):
    from sessions import opened

    search = registry.searches()[case]
    overrides = {"seed": 14, "encoder_layers": 1, "layers": 1} | VARIANTS.get(case, {})
    network = lanmt(SIZE, SIZE, **overrides).float()
    settings = search.settings(**CASES[case])
    networks, models = {MODEL: network}, {"lanmt": network}
    if REFINER in search.needs:
        networks[REFINER] = models["score"] = refiner("score", seed=3).float()
    assert registry.engines()["onnxruntime"].serves(registry.families()["lanmt"], search, settings) is None
    engine = opened(dict(reversed(models.items())))
    # Graphs of several sentences, which have padding, are others.
    check_outputs_and_scores(engine, networks, SOURCE, settings, together=case == "score")


def test_a_search_that_stops_by_itself_has_no_fixed_graph():
    delta = registry.searches()["delta"]
    serves = registry.engines()["onnxruntime"].serves
    reason = serves(registry.families()["lanmt"], delta, delta.settings(steps=3, stop_unchanged=True))
    assert "search delta" in reason and "stop_unchanged" in reason
