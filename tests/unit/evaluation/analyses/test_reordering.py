"""Word order and latents: against enumeration, by hand."""

import itertools

import miniatures
import numpy as np
import pytest
import torch

from workflow_src.decoding.ctc import collapse
from workflow_src.evaluation.analyses.reordering import measure as reordering
from workflow_src.types import EOS


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("a b c", "a b c", 0.0),
        ("a b c", "c b a", 1.0),
        # Of the pairs ab, ac, bc one is turned.
        ("a b c", "a c b", 1 / 3),
        # Words on one side alone, and those that stand twice, say nothing.
        ("a x b a c y", "z c b a a", 1.0),
        ("a b", "c d", None),
        ("a b", "a c", None),
    ],
)
def test_the_share_of_pairs_in_the_opposite_order(one, other, share):
    disagreement = reordering.disagreement(one.split(), other.split())
    assert disagreement == (None if share is None else pytest.approx(share))
    assert reordering.disagreement(other.split(), one.split()) == disagreement


@pytest.mark.parametrize("seed", range(6))
def test_an_assignment_has_the_least_sum_of_all_permutations(seed):
    distances = np.random.default_rng(seed).random((6, 6))
    assignment = reordering.assignment(distances)
    sums = {order: distances[np.arange(6), list(order)].sum() for order in itertools.permutations(range(6))}
    assert tuple(assignment) == min(sums, key=sums.get)


def test_latents_that_were_permuted_are_found_again():
    draw = np.random.default_rng(3)
    one, order = draw.normal(size=(9, 4)), draw.permutation(9)
    other = np.empty_like(one)
    other[order] = one + 0.01 * draw.normal(size=one.shape)
    distances = reordering.distances_between(one, other)
    assert distances[2, 5] == pytest.approx(np.sqrt(((one[2] - other[5]) ** 2).sum()))
    assert reordering.assignment(distances) == order.tolist()


def test_where_staying_is_as_good_none_moves():
    assert reordering.assignment(np.ones((4, 4))) == [0, 1, 2, 3]
    assert reordering.assignment(np.zeros((3, 3))) == [0, 1, 2]
    assert reordering.assignment(np.ones((1, 1))) == [0]


def test_a_sentence_is_described_in_shares_and_positions():
    distances = np.array([[1.0, 2.0, 6.0], [2.0, 3.0, 4.0], [0.0, 4.0, 5.0]])
    assert reordering.moves(distances, [2, 1, 0]) == pytest.approx(
        {"moved": 2 / 3, "displacement": 4 / 3, "change": 3.0, "spread": 3.0}
    )
    assert reordering.moves(np.array([[2.0]]), [0]) == {"moved": 0, "displacement": 0, "change": 2, "spread": 0}


def test_sentences_are_grouped_by_word_order():
    rows = [
        {"moved": share, "displacement": 3 * share, "change": share, "spread": 2.0} for share in (0.0, 0.2, 0.4, 0.8)
    ]
    same, other = reordering.summary(rows, [0.0, 0.0, 0.5, 0.7])
    correlation = pytest.approx(np.corrcoef([0, 0.2, 0.4, 0.8], [0, 0, 0.5, 0.7])[0, 1])
    assert same.pop("order") == "the same" and other.pop("order") == "another"
    assert same.pop("correlation") == other.pop("correlation") == correlation
    assert same == pytest.approx({"sentences": 2, "moved": 0.1, "displacement": 0.3, "relative_change": 0.05})
    assert other == pytest.approx({"sentences": 2, "moved": 0.6, "displacement": 1.8, "relative_change": 0.3})
    # Groups without a sentence are left out; positions that do not differ have no spread.
    (alone,) = reordering.summary([row | {"spread": 0.0} for row in rows[:2]], [0.0, 0.0])
    assert alone["order"] == "the same" and alone["correlation"] is alone["relative_change"] is None


@pytest.mark.parametrize("target", [[5, 7], [4, 4, 9], [6], [7, 3, 8, 3]])
def test_alignments_are_the_most_probable_of_all(target):
    model = miniatures.nat(seed=6, latent="vae", latent_dim=3, posterior_layers=1)
    source = [4, 9, EOS]
    alignment = reordering.alignment(model, source, target, torch.device("cpu"))
    with torch.no_grad():
        memory = model.encode(torch.tensor([source]))
        mean, _ = model.posterior(memory, torch.tensor([target]), memory.mask)
        scores = model.logits(model.hidden(memory, z=mean)[0])[0].log_softmax(-1)
    assert alignment["slots"] == len(scores) == 6
    symbols = [model.blank, *dict.fromkeys(target)]
    paths = [path for path in itertools.product(symbols, repeat=6) if collapse(list(path), model.blank) == target]
    best = max(paths, key=lambda path: sum(float(scores[slot, symbol]) for slot, symbol in enumerate(path)))
    symbols_of_slots = [model.blank] * 6
    for word, slots in zip(target, alignment["places"], strict=True):
        assert slots == list(range(slots[0], slots[-1] + 1))
        for slot in slots:
            symbols_of_slots[slot] = word
    assert tuple(symbols_of_slots) == best


def test_more_subwords_than_slots_have_no_alignment():
    model = miniatures.nat(latent="vae", latent_dim=3, posterior_layers=1)
    alignment = reordering.alignment(model, [4, EOS], [4, 4, 4], torch.device("cpu"))
    assert alignment == {"slots": 4, "places": None}
