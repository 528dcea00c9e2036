"""Programs of static shapes, which run uncaptured on CPUs, against `decoding/latent.py`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miniatures import ending, lvm, refiner, translate_batch

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.engines.choose import choose_mode
from workflow_src.engines.cuda_graphs import CapturedLatent, bucket, rows

SEARCHES = [("prior-mean", 0), ("delta", 2), ("score", 3)]
CPU = torch.device("cpu")


def chosen(engine: str, device: str, family: str, precision: str = "float32"):
    declared = registry.families()[family]
    mode, one = choose_mode(engine, device, precision, declared, registry.searches_of(declared))
    return mode, one.name if one else None


def test_fast_on_a_gpu_is_these_graphs_where_they_serve():
    assert chosen("fast", "cuda:0", "lvm", "bfloat16") == ("fast", "cuda_graphs")
    assert chosen("auto", "cuda", "lvm") == chosen("eager", "cuda", "lvm") == ("eager", None)
    assert chosen("fast", "cuda", "nat", "bfloat16") == ("fast", "cuda_graphs")
    assert chosen("auto", "cuda", "nat") == chosen("auto", "cuda", "transformer") == ("eager", None)


def test_fast_on_a_gpu_is_refused_where_nothing_serves():
    with pytest.raises(ValueError, match="serves searches that have a program, and this system has none; use engine"):
        chosen("fast", "cuda", "transformer")


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_buckets_hold_what_is_put_into_them(length, limit):
    found = bucket(min(length, limit), limit)
    assert min(length, limit) <= found <= limit
    assert bucket(found, limit) == found
    # Less than 8 positions wasted on short sentences, less than half as many as needed on longer ones.
    assert found - min(length, limit) < max(8, min(length, limit) / 2)


def test_there_are_few_buckets():
    assert len({bucket(length, 512) for length in range(1, 513)}) == 16
    assert [rows(n) for n in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]


NEWER = {"decoder_skip": True, "length_pooling": "attention"}


@pytest.mark.parametrize(("search", "steps"), SEARCHES)
@pytest.mark.parametrize("newer", [False, True])
def test_translations_are_those_of_dynamic_shapes(search, steps, newer):
    """The same programs serve other sentences of their buckets; spare rows and padding change nothing."""
    model, network = ending(**NEWER) if newer else lvm(), refiner("score", positions=not newer)
    made = CapturedLatent(model, 64, CPU, network)
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 20, (40,), generator=draw).tolist()
    sources = [torch.randint(3, 13, (n,), generator=draw).tolist() for n in lengths]
    wanted = translate_batch(model, pad(sources, eos=True), search, steps, refiner=network)
    for size in (1, 3, 40):
        parts = [made.search(sources[i : i + size], search, steps) for i in range(0, 40, size)]
        assert [row for part in parts for row in part.tokens] == wanted.tokens
        assert [count for part in parts for count in part.steps] == wanted.steps
    # 40 single sentences, 14 batches and one: all by the programs of a few shapes.
    assert len(made._encoders) <= 9 and len(made._refiners) <= 20


def test_steps_and_their_size_have_programs_of_their_own():
    model, network = lvm(), refiner("score")
    made, sources = CapturedLatent(model, 64, CPU, network), [[5, 6, 7, 8, 9, 10]]
    for steps, size in ((0, 1.0), (1, 1.0), (1, 30.0), (3, 30.0), (1, 1.0)):
        wanted = translate_batch(model, pad(sources, eos=True), "score", steps, size, refiner=network)
        assert made.search(sources, "score", steps, size).tokens == wanted.tokens
    assert len(made._encoders) == 1 and len(made._refiners) == 4


def test_lengths_may_be_a_quantile_of_the_predicted_ones():
    model, sources = lvm(), [[5, 6, 7], [8, 9, 10, 11, 12]]
    made, seen = CapturedLatent(model, 64, CPU), set()
    for quantile in (0.1, 0.9, None, 0.1):
        wanted = translate_batch(model, pad(sources, eos=True), "delta", 1, length_quantile=quantile).tokens
        assert made.search(sources, "delta", 1, length_quantile=quantile).tokens == wanted
        seen.add(str(wanted))
    assert len(seen) >= 2 and len(made._encoders) == 3


@pytest.mark.parametrize("quantile", [None, 0.7])
def test_lengths_may_be_longer_than_predicted(quantile):
    model, sources = ending(**NEWER), [[5, 6, 7], [8, 9, 10, 11, 12]]
    made, seen = CapturedLatent(model, 64, CPU), set()
    for lengthening in (0.0, 0.5, 2.0, 1e30, 0.5):
        settings = {"length_quantile": quantile, "lengthening": lengthening}
        wanted = translate_batch(model, pad(sources, eos=True), "delta", 1, **settings).tokens
        assert made.search(sources, "delta", 1, **settings).tokens == wanted
        seen.add(str(wanted))
    assert len(seen) == 4 and len(made._encoders) == 4


@pytest.mark.parametrize("end", [False, True])
def test_the_longest_sentences_fit(end):
    model = lvm(max_positions=21, end_symbol=end)
    with torch.no_grad():
        model.length.outer.bias[-1] += 100
        # A word may stand where the end symbol is due.
        model.output_bias[2] -= 1000
    made, sources = CapturedLatent(model, 21, CPU), [[7] * 20]
    wanted = translate_batch(model, pad(sources, eos=True), "delta", 1)
    assert made.search(sources, "delta", 1).tokens == wanted.tokens and len(wanted.tokens[0]) == 21


def test_what_cannot_be_searched_is_named():
    made = CapturedLatent(lvm(), 64, CPU)
    with pytest.raises(ValueError, match='^unknown search "energy"; allowed: prior-mean, delta, score.$'):
        made.search([[5]], "energy", 1)
    with pytest.raises(ValueError, match="^search score needs a score network; this system has none.$"):
        made.search([[5]], "score", 1)
