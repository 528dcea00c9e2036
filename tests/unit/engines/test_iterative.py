"""Refinement by passes in ONNX Runtime, against our own code."""

from __future__ import annotations

import pytest
import torch
from miniatures import inat, searched, tokens
from sessions import translated

from workflow_src import registry
from workflow_src.spec import MODEL
from workflow_src.types import EOS, PAD

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SOURCE = tokens([3, 1, 5, 2], 9, end=True)
LINES = [[i for i in row if i not in (PAD, EOS)] for row in SOURCE.tolist()]
# What takes time is the exporter, which goes from operator to operator.
SMALL = {"encoder_layers": 1, "layers": 1}


@pytest.mark.graphs
@pytest.mark.parametrize("fields", [{"passes": 3}, {"passes": 2, "lengths": 3}])
@pytest.mark.usefixtures("graphs")
def test_outputs_scores_and_passes_are_those_of_our_own_code(fields):
    from sessions import opened

    search, family = registry.searches()["iterative-refinement"], registry.families()["inat"]
    network = inat(9, 9, seed=4, **SMALL).float()
    settings = search.settings(**fields)
    networks = {MODEL: network}
    assert registry.engines()["onnxruntime"].serves(family, search, settings) is None
    engine = opened({"inat": network})
    with torch.no_grad():
        expected = searched(networks, SOURCE, settings)
    singles = [translated(engine, [line], settings, True, networks) for line in LINES]
    assert [single.tokens[0] for single in singles] == expected.tokens
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-4)
    assert [single.steps[0] for single in singles] == expected.steps == [fields["passes"]] * 4
    if settings.lengths > 1:
        # Graphs of several sentences, which have padding, take as long to export again.
        batched = translated(engine, LINES, settings, True, networks)
        assert batched.tokens == expected.tokens and batched.scores == pytest.approx(expected.scores, abs=1e-4)
        assert batched.steps == expected.steps


def test_a_stop_that_depends_on_values_has_no_graph():
    search, family = registry.searches()["iterative-refinement"], registry.families()["inat"]
    reason = registry.engines()["onnxruntime"].serves(family, search, search.settings(stop="adaptive"))
    assert "iterative-refinement" in reason and "stop: adaptive" in reason
