"""Beams over the slots of graphs, and of batches on a device, against eager inference sentence by sentence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from miniatures import nat, searched
from sessions import translated

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.ngram import estimate
from workflow_src.decoding.slots import ROOM, probable, rows_of_arrays, rows_of_tensors
from workflow_src.searches.ctc_beam import CtcBeamSettings
from workflow_src.searches.ctc_beam.search import beam_of
from workflow_src.spec import MODEL
from workflow_src.types import EOS

SIZE = 48
BLANK = SIZE - 1
DRAW = np.random.default_rng(0)
SOURCES = [DRAW.integers(3, SIZE - 1, DRAW.integers(1, 9)).tolist() for _ in range(12)]


def logits_of(sharpness: float, rows: int = 5, slots: int = 6) -> torch.Tensor:
    drawn = torch.randn(rows, slots, SIZE, generator=torch.Generator().manual_seed(3)) * sharpness
    drawn[..., : EOS + 1] = -torch.inf
    # Equal symbols, and the blank as good as the best.
    drawn[0, 0, 8:12] = drawn[0, 0, 20]
    drawn[1, 2, BLANK] = drawn[1, 2].max()
    return drawn


@pytest.mark.parametrize("min_ratio", [0.0, 0.02, 0.1, 1.0])
@pytest.mark.parametrize("sharpness", [0.5, 3.0])
@pytest.mark.parametrize("room", [1, ROOM])
def test_slots_of_a_batch_on_a_device_are_those_of_sentences_one_by_one(min_ratio, sharpness, room, monkeypatch):
    monkeypatch.setattr("workflow_src.decoding.slots.ROOM", room)
    logits, slots = logits_of(sharpness), torch.tensor([6, 4, 1, 5, 6])
    expected = [probable(row[:count].numpy(), min_ratio) for row, count in zip(logits, slots, strict=True)]
    actual = rows_of_tensors(logits, slots, min_ratio, True)
    for row, arrays in zip(actual, expected, strict=True):
        assert all(map(np.array_equal, row[:3], arrays))
    best = logits.log_softmax(-1).amax(-1)
    sums = [float(sentence_best[:count].sum()) for sentence_best, count in zip(best, slots, strict=True)]
    assert [row.base for row in actual] == pytest.approx(sums, abs=1e-4)
    assert all(row.base == 0 for row in rows_of_tensors(logits, slots, min_ratio, False))


@pytest.mark.parametrize("min_ratio", [0.0, 0.02, 0.1, 1.0])
def test_compiled_code_finds_the_same_symbols(min_ratio):
    logits, slots = logits_of(0.5), torch.tensor([6, 4, 1, 5, 6])
    expected = [probable(row[:count].numpy(), min_ratio) for row, count in zip(logits, slots, strict=True)]
    pytest.importorskip("numba", reason="needs the extra fast")
    chosen = beam_of(BLANK, CtcBeamSettings(), None).words.probable
    assert chosen is not probable
    for row, arrays in zip(
        rows_of_arrays(logits.numpy(), slots.numpy(), min_ratio, False, chosen), expected, strict=True
    ):
        assert all(map(np.array_equal, row[:3], arrays))


@pytest.fixture(scope="module")
def model():
    network = nat(SIZE, SIZE, seed=4, encoder_layers=1, layers=1).float()
    with torch.no_grad():
        # Sharp enough that some slots have a few probable symbols, and others many.
        network.target_embedding.weight.mul_(2)
    return network


@pytest.fixture(scope="module")
def language_model():
    lengths = DRAW.integers(1, 9, 60)
    return estimate(DRAW.integers(3, BLANK, lengths.sum()), np.cumsum([0, *lengths]), SIZE, 3)


class Carried:
    """A system whose `scorer` is a language model."""

    def __init__(self, scorer):
        self.scorer = scorer


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_beams_in_a_graph_are_those_of_eager_inference(model, language_model, monkeypatch):
    """Several widths and ratios share a graph; alone and in padded batches, with a language model and without."""
    pytest.importorskip("onnxscript", reason="needs the extra fast")
    from sessions import opened

    from workflow_src.engines import onnx_export

    search, exports, export = registry.searches()["ctc-beam"], [], onnx_export.export
    monkeypatch.setattr(onnx_export, "export", lambda *a: (exports.append(a), export(*a))[1])
    engine = opened({"nat": model})
    # Every pair of values of two settings.
    widths, others = itertools.product((1, 3, 20), (0.0, 0.05, 0.5)), itertools.product((None, 2.0), (False, True))
    for (beam, min_ratio), (threshold, with_model) in zip(widths, itertools.cycle(others), strict=False):
        fields = {"language_model": "lm", "lm_weight": 0.4} if with_model else {}
        settings = search.settings(beam=beam, min_ratio=min_ratio, word_bonus=0.5, beam_threshold=threshold, **fields)
        networks = {MODEL: model} | ({"language_model": Carried(language_model)} if with_model else {})
        with torch.no_grad():
            expected = searched(networks, pad(SOURCES, eos=True), settings)
        batched = translated(engine, SOURCES, settings, True, networks)
        singles = [translated(engine, [source], settings, True, networks) for source in SOURCES]
        assert batched.tokens == [single.tokens[0] for single in singles] == expected.tokens
        assert batched.candidates == [single.candidates[0] for single in singles] == expected.candidates
        assert batched.scores == pytest.approx(expected.scores, abs=1e-4)
        assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-4)
        for actual_pairs, expected_pairs in zip(batched.ranked(), expected.ranked(), strict=True):
            assert [score for score, _ in actual_pairs] == pytest.approx(
                [score for score, _ in expected_pairs], abs=1e-4
            )
            assert {tuple(words) for _, words in actual_pairs} == {tuple(words) for _, words in expected_pairs}
    assert len(exports) == 2
    assert len({word for row in expected.tokens for word in row}) > 1
