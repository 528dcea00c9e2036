"""LSTM layers in ONNX Runtime, against torch's packed sequences: searches of a tagger, alone and in batches."""

from __future__ import annotations

import pytest
import torch
import yaml
from miniatures import lively, searched, tokens
from sessions import translated

from workflow_src import registry
from workflow_src.families.build import build
from workflow_src.spec import MODEL
from workflow_src.types import EOS, PAD

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 29
SOURCE = tokens([3, 1, 7, 2, 5], SIZE, end=True)
LINES = [[i for i in row if i not in (PAD, EOS)] for row in SOURCE.tolist()]


@pytest.mark.graphs
@pytest.mark.parametrize("lengths", [1, 3])
def test_outputs_and_scores_are_those_of_our_own_code(lengths, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from sessions import opened

    family, search = registry.families()["tagger"], registry.searches()["argmax"]
    preset = yaml.safe_load(family.presets.read_text(encoding="utf-8"))["miniature"]
    torch.manual_seed(4)
    sizes = {"source": SIZE, "target": SIZE, "joint": True}
    # Two layers on each side: the second reads the outputs of both directions of the first.
    network = build(family.name, preset | {"source_layers": 2, "target_layers": 2, "max_length_difference": 4}, sizes)
    network = lively(network, 4, 0.3).float()
    with torch.no_grad():
        network.projection.weight.mul_(10)
        network.projection.bias.zero_()
    settings = search.settings(lengths=lengths)
    assert registry.engines()["onnxruntime"].serves(family, search, settings) is None
    with torch.no_grad():
        expected = searched({MODEL: network}, SOURCE, settings)
    assert len({len(row) for row in expected.tokens}) > 1 and len({word for row in expected.tokens for word in row}) > 3
    engine = opened({"tagger": network})
    singles = [translated(engine, [line], settings, True, {MODEL: network}) for line in LINES]
    assert [single.tokens[0] for single in singles] == expected.tokens
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-5)
    if lengths > 1:
        # Graphs of several sentences, which have padding, take as long to export again.
        batched = translated(engine, LINES, settings, True, {MODEL: network})
        assert batched.tokens == expected.tokens and batched.scores == pytest.approx(expected.scores, abs=1e-5)
    assert len(list(tmp_path.rglob("*.onnx"))) == (2 if lengths > 1 else 1)
