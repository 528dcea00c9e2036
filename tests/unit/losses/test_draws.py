"""Random numbers of sentences: they follow from the seed and the row alone, and have the distributions they say."""

from __future__ import annotations

import math

import pytest
import torch
from miniatures import pairs

from workflow_src.losses.draws import gumbel, normal, number_of, seed_of, sentence_keys, subset, uniform
from workflow_src.types import Batch


def rows(*numbers: int) -> Batch:
    return Batch(*(x.expand(len(numbers), -1) for x in (torch.tensor([[5, 2]]), torch.tensor([[4]]))), numbers)


def test_keys_follow_from_the_seed_and_the_row_and_not_from_the_batch():
    together = sentence_keys(rows(3, 9, 1), 7)
    alone = torch.cat([sentence_keys(rows(number), 7) for number in (3, 9, 1)])
    assert torch.equal(together, alone) and len(set(together.tolist())) == 3
    assert not set(together.tolist()) & set(sentence_keys(rows(3, 9, 1), 8).tolist())
    unnumbered = pairs([2, 1], [1, 1])
    assert torch.equal(sentence_keys(Batch(unnumbered.source, unnumbered.target), 7), sentence_keys(rows(0, 1), 7))


@pytest.mark.parametrize("draw", [uniform, normal, gumbel])
def test_longer_draws_continue_shorter_ones_and_streams_differ(draw):
    keys = sentence_keys(rows(*range(4)), 1)
    assert torch.equal(draw(keys, (9, 3), 2)[:, :5], draw(keys, (5, 3), 2))
    assert not torch.isclose(draw(keys, (9, 3), 2), draw(keys, (9, 3), 1)).any()


@pytest.mark.parametrize(
    ("draw", "mean", "variance"), [(uniform, 0.5, 1 / 12), (normal, 0.0, 1.0), (gumbel, 0.5772157, math.pi**2 / 6)]
)
def test_moments(draw, mean, variance):
    """Over sentences and positions, and without correlation of neighbours."""
    numbers = draw(sentence_keys(rows(*range(400)), 5), (500,))
    assert torch.isfinite(numbers).all() and numbers.dtype == torch.float64
    assert float(numbers.mean()) == pytest.approx(mean, abs=0.01)
    assert float(numbers.var()) == pytest.approx(variance, rel=0.02)
    for one, other in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        assert abs(float(((one - mean) * (other - mean)).mean())) < 0.01


def test_every_subset_is_as_likely_as_any_other():
    keys = sentence_keys(rows(*range(6000)), 3)
    sizes, count = torch.full((6000,), 4), torch.full((6000,), 2)
    masks = subset(keys, sizes, count, 6)
    assert (masks.sum(1) == 2).all() and not masks[:, 4:].any()
    _, frequencies = torch.unique(masks, dim=0, return_counts=True)
    assert len(frequencies) == 6 and (frequencies - 1000).abs().max() < 130
    assert (subset(keys[:2], torch.tensor([3, 0]), torch.tensor([9, 9]), 4).sum(1) == torch.tensor([3, 0])).all()


def test_seeds_tell_all_their_numbers_apart():
    seeds = {seed_of(*numbers) for numbers in ((1,), (2,), (1, 2), (2, 1), (1, 2, 0), (1, 2, 1), (1, 0, 2))}
    assert len(seeds) == 7 and all(0 <= seed < 2**63 for seed in seeds) and seed_of(1, 2) == seed_of(1, 2)


def test_a_number_of_an_update_follows_from_its_seed_and_stream():
    numbers = torch.tensor([number_of(seed, 2) for seed in range(3000)])
    assert number_of(5, 2) == number_of(5, 2) != number_of(5, 1)
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.02)
    assert float((numbers < 0.3).float().mean()) == pytest.approx(0.3, abs=0.03)
