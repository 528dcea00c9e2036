"""Counted operations against PyTorch's own counter of real networks, sums by hand, and what must grow with what."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from workflow_src.data.batching import pad
from workflow_src.families.build import build, build_objective
from workflow_src.registry import families, searches
from workflow_src.spec import MODEL
from workflow_src.training import counting
from workflow_src.types import Batch, TrainingContext

LENGTH, VOCABULARY = 12, 50
SIZES = {"source": VOCABULARY, "target": VOCABULARY, "joint": True}
STACK = {"dim": 32, "feed_forward": 64, "heads": 4, "dropout": 0.0, "max_positions": 64}
MODELS = {
    "transformer": STACK | {"encoder_layers": 2, "decoder_layers": 1},
    "lvm": STACK | {"encoder_layers": 1, "layers": 2},
    "nat": STACK | {"encoder_layers": 1, "layers": 1},
    "cmlm": STACK | {"encoder_layers": 1, "layers": 1},
    "inat": STACK | {"encoder_layers": 1, "layers": 1},
    "score": STACK | {"layers": 2},
    "energy": STACK | {"layers": 2},
    "seq2seq": {"dim": 16, "embedding_dim": 12, "encoder_dim": 8},
    "tagger": {"dim": 16, "embedding_dim": 12},
}


def network(family, **changes):
    return counting.without_weights(family, MODELS[family] | changes, SIZES)


def searched(name, networks, length=LENGTH, **settings):
    return counting.search(networks, searches()[name].settings(**settings), VOCABULARY, length)


@pytest.mark.parametrize("family", ["transformer", "nat", "seq2seq", "tagger"])
def test_an_update_counts_what_pytorch_counts_of_a_real_network(family):
    torch.manual_seed(0)
    model = build(family, MODELS[family], SIZES).train()
    objective = build_objective(family, {})
    source, target = torch.randint(4, VOCABULARY, (2, 3, LENGTH)).tolist()
    batch = Batch(pad(source, eos=True), pad(target, eos=False), (0, 1, 2))
    plain = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    with plain[0], plain[1], FlopCounterMode(display=False) as counter:
        objective(model, batch, TrainingContext(1, 2, 0)).loss.backward()
    counted = counting.update({MODEL: network(family)}, family, {}, LENGTH)
    # All sentences and updates of these families compute the same.
    assert counted * 3 * (LENGTH + 1) == pytest.approx(counter.get_total_flops(), rel=1e-9) and counted > 0


def test_an_update_is_the_mean_over_what_objectives_draw():
    """A masked language model projects masked positions onto the vocabulary, half of them on average."""
    small, large = (
        counting.update(
            {MODEL: counting.without_weights("cmlm", MODELS["cmlm"], SIZES | {"source": size, "target": size})},
            "cmlm",
            {},
            LENGTH,
        )
        for size in (1000, 2000)
    )
    assert large - small == pytest.approx(0.5 * 6 * 1000 * STACK["dim"], rel=0.25)


def test_networks_have_no_memory_for_weights_and_as_many_of_them():
    for family in MODELS:
        model, real = network(family), build(family, MODELS[family], SIZES)
        assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in real.parameters())
        assert all(p.untyped_storage().nbytes() <= 8 * 2 * 50 + 8 for p in model.parameters()), family


@pytest.mark.parametrize("length", [4, LENGTH])
def test_greedy_search_by_hand(length):
    """One layer on each side; how many places of its cache a step attends to is its own matter."""
    dim, inner, words = 32, 64, length + 1
    model = network("transformer", encoder_layers=1)
    encoder = words * (4 * dim**2 + 2 * dim * inner) + 2 * words * words * dim
    keys_of_the_source = words * 2 * dim**2
    steps = words * (4 * dim**2 + 2 * dim**2 + 2 * dim * inner + VOCABULARY * dim + 2 * words * dim)
    # Step t attends to t places.
    own_attention = 2 * dim * words * (words + 1) / 2
    by_hand = 2 * (encoder + keys_of_the_source + steps + own_attention)
    assert searched("greedy", {MODEL: model}, length) == pytest.approx(by_hand, rel=0.08)
    beam = searched("beam", {MODEL: model}, length, beam=4)
    assert 3 < (beam - 2 * encoder) / (by_hand - 2 * encoder) < 4.2


@pytest.mark.parametrize(("dim", "layers", "vocabulary"), [(128, 2, 4000), (256, 3, 32000)])
def test_steps_cost_what_the_rule_of_thumb_says(dim, layers, vocabulary):
    """Of delta to a score network 2 + V / (14 n D), since keys and values of the source are kept from step to step; an
    energy network goes forward and back."""
    model = {"dim": dim, "feed_forward": 4 * dim, "layers": layers, "heads": 4, "max_positions": 64}
    sizes = {"source": vocabulary, "target": vocabulary, "joint": True}
    base = counting.without_weights("lvm", model | {"encoder_layers": 1}, sizes)

    def step(name, **networks):
        counts = [
            counting.search({MODEL: base, **networks}, searches()[name].settings(steps=steps), vocabulary, LENGTH)
            for steps in (1, 2)
        ]
        return counts[1] - counts[0]

    refiners = {name: counting.without_weights(name, model, sizes) for name in ("score", "energy")}
    score, energy = (step(name, refiner=refiner) for name, refiner in refiners.items())
    assert step("delta") / score == pytest.approx(2 + vocabulary / (14 * layers * dim), rel=0.07)
    assert 1.6 < energy / score < 2.1


def test_candidates_steps_and_passes_count():
    lvm, refiner = network("lvm"), network("score")
    roles = {MODEL: lvm, "refiner": refiner}
    one, six = (searched("latent-search", roles, lengths=n, samples=m, steps=1) for n, m in ((1, 1), (2, 3)))
    assert 4 < six / one < 6.5
    assert searched("prior-mean", {MODEL: lvm}) < searched("delta", {MODEL: lvm}, steps=1)
    for name, family, setting in (("mask-predict", "cmlm", "iterations"), ("iterative-refinement", "inat", "passes")):
        few, some, more = (
            searched(name, {MODEL: network(family)}, **{setting: n}, **({"length_beam": 1} if family == "cmlm" else {}))
            for n in (1, 2, 3)
        )
        assert more > some > few
        if family == "inat":
            assert more - some == pytest.approx(some - few, rel=0.2)


def test_lengths_are_those_of_the_source_and_what_is_scored_is_what_there_is():
    ctc = network("nat")
    short, long = (searched("ctc-greedy", {MODEL: ctc}, length=n) for n in (10, 20))
    assert 1.8 < long / short < 2.3
    teacher = network("transformer")
    one, two, three = (counting.scoring(teacher, LENGTH, n) for n in (1, 2, 3))
    # The source is read once.
    assert three - two == pytest.approx(two - one, rel=0.01) and two < 2 * one


def test_counting_leaves_threads_and_modes_as_they_were():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        searched("ctc-greedy", {MODEL: network("nat")})
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert float((torch.ones(2, 2) @ torch.ones(2, 2)).sum()) == 8
    assert families()["nat"].symbols == network("nat").symbols.names
