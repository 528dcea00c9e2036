"""Mask-predict in ONNX Runtime: all passes in one graph, against our own code."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from miniatures import cmlm, searched, tokens
from sessions import request, translated

from workflow_src import registry
from workflow_src.spec import MODEL
from workflow_src.types import EOS, PAD

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 9
SOURCE = tokens([3, 1, 5, 8], SIZE, end=True)
LINES = [[i for i in row if i not in (PAD, EOS)] for row in SOURCE.tolist()]
SEARCH = registry.searches()["mask-predict"]
# What takes time is the exporter, which goes from operator to operator.
SMALL = {"encoder_layers": 1, "layers": 1}


@pytest.fixture
def open_engine(graphs):
    from sessions import opened

    return lambda model, mode="fast": opened({"cmlm": model}, mode)


def our_own(networks, settings):
    with torch.no_grad():
        return searched(networks, SOURCE, settings)


@pytest.mark.graphs
@pytest.mark.parametrize(
    "fields",
    [
        {"iterations": 2, "length_beam": 3, "rescorer": "teacher"},
        {"iterations": 2, "length_beam": 3, "length_penalty": 2.0},
        {"iterations": 3, "length_beam": 1, "lengthening": 0.5},
    ],
)
def test_outputs_and_scores_are_those_of_our_own_code(fields, open_engine, graphs, rescorer):
    earlier_graphs = set(graphs.rglob("*.onnx"))
    model, settings = cmlm(SIZE, SIZE, seed=38, **SMALL).float(), SEARCH.settings(**fields)
    networks = {MODEL: model} | ({"rescorer": rescorer} if "rescorer" in fields else {})
    assert registry.engines()["onnxruntime"].serves(registry.families()["cmlm"], SEARCH, settings) is None
    expected, engine = our_own(networks, settings), open_engine(model)
    # Later passes change outputs.
    assert expected.tokens != our_own(networks, settings.model_copy(update={"iterations": 1})).tokens
    singles = [translated(engine, [line], settings, True, networks) for line in LINES]
    assert [single.tokens[0] for single in singles] == expected.tokens
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-4)
    if settings.length_beam > 1:
        # Graphs of several sentences, which have padding, take as long to export again.
        batched = translated(engine, LINES, settings, True, networks)
        assert batched.tokens == expected.tokens and batched.scores == pytest.approx(expected.scores, abs=1e-4)
        return
    # All passes share the weights: of each feed-forward layer there is one matrix.
    import onnx

    (path,) = set(graphs.rglob("*.onnx")) - earlier_graphs
    shapes = [sorted(tensor.dims) for tensor in onnx.load(path).graph.initializer]
    assert shapes.count([16, 24]) == 2 * (model.config.encoder_layers + model.config.layers)


@pytest.mark.graphs
def test_in_8_bits_outputs_have_the_lengths_that_float32_has(open_engine):
    """Only large products are rounded, so words may change with random weights, but not lengths."""
    model, settings = (
        cmlm(64, 64, seed=5, dim=32, feed_forward=64, **SMALL).float(),
        SEARCH.settings(iterations=3, length_beam=1),
    )
    expected = our_own({MODEL: model}, settings)
    session = open_engine(model, "fast-int8")
    several = dataclasses.replace(request(session, settings, scored=True), n_best=2)
    hypotheses = session.search(LINES, several)
    assert [len(row) for row in hypotheses.tokens] == [len(row) for row in expected.tokens]
    assert hypotheses.scores == pytest.approx(expected.scores, abs=0.3) and hypotheses.scores != expected.scores
    # Sentences are computed one at a time; their lists of hypotheses are put together too.
    assert [pairs[0] for pairs in hypotheses.ranked()] == [*zip(hypotheses.scores, hypotheses.tokens, strict=True)]
