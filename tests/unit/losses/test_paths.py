"""Sums and maxima over paths against enumeration of all paths."""

from __future__ import annotations

import pytest
import torch
from graphs import log_probability, paths, random_graphs

from workflow_src.losses.paths import Paths, best_path, posterior
from workflow_src.types import BOS, EOS, PAD

VERTICES = torch.tensor([7, 5, 6, 3, 2])
# With start and end: 4, 5, 2, 5 and 2 symbols. The fourth has more than it has vertices.
TARGET = torch.tensor([[5, 5, PAD], [6, 7, 8], [PAD] * 3, [5, 6, 7], [PAD] * 3])
REACHABLE = [0, 1, 2, 4]
PATHS = Paths.of(TARGET, VERTICES)


def totals(emissions, transitions, row: int) -> list[torch.Tensor]:
    count = int(PATHS.counts[row])
    return [log_probability(emissions[row], transitions[row], path) for path in paths(int(VERTICES[row]), count)]


def test_targets_begin_with_a_start_symbol_and_end_with_an_end_symbol():
    assert PATHS.symbols.tolist()[0] == [BOS, 5, 5, EOS, PAD] and PATHS.symbols.tolist()[2] == [BOS, EOS, *[PAD] * 3]
    assert PATHS.counts.tolist() == [4, 5, 2, 5, 2]
    assert PATHS.reachable.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("seed", range(4))
def test_the_total_is_the_sum_over_all_paths_and_its_gradients_are_visits_and_transitions(seed):
    emissions, transitions = random_graphs(VERTICES, 5, seed)
    emissions.requires_grad_(), transitions.requires_grad_()
    actual = posterior(emissions, transitions, PATHS)
    for row in REACHABLE:
        total = torch.stack(totals(emissions, transitions, row)).logsumexp(0)
        visits, moves = torch.autograd.grad(total, (emissions, transitions))
        assert actual.total[row].item() == pytest.approx(total.item(), rel=1e-12)
        assert torch.allclose(actual.visits[row], visits[row], atol=1e-12)
        assert torch.allclose(actual.transitions[row], moves[row], atol=1e-12)
    assert not actual.visits[3].any() and not actual.transitions[3].any()
    # A path is at one vertex for each symbol, and leaves every one but the last.
    assert torch.allclose(actual.visits.sum((1, 2))[REACHABLE], PATHS.counts[REACHABLE].double())
    assert torch.allclose(actual.transitions.sum((1, 2))[REACHABLE], PATHS.counts[REACHABLE].double() - 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_path_is_the_best_of_all(seed):
    emissions, transitions = random_graphs(VERTICES, 5, seed)
    actual = best_path(emissions, transitions, PATHS)
    for row in REACHABLE:
        count = int(PATHS.counts[row])
        scores = totals(emissions, transitions, row)
        best = list(paths(int(VERTICES[row]), count))[int(torch.stack(scores).argmax())]
        assert actual[row, :count].tolist() == list(best)
        assert not actual[row, count:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_paths_that_are_hardly_possible_give_finite_numbers(dtype):
    """A path of e^-40000, of which float32 and float64 alike hold the logarithm alone."""
    emissions, transitions = (x.to(dtype) for x in random_graphs(torch.tensor([40]), 30))
    target = torch.full((1, 28), 5)
    actual = posterior(emissions * 400, transitions * 40, Paths.of(target, torch.tensor([40])))
    assert torch.isfinite(actual.total).all() and actual.total < -1000
    for part in (actual.visits, actual.transitions):
        assert torch.isfinite(part).all() and (part >= 0).all() and (part <= 1 + 1e-3).all()
    assert actual.visits.sum().item() == pytest.approx(30, rel=1e-2)


@pytest.mark.parametrize("vertices", [2, 3])
def test_a_target_with_more_symbols_than_vertices_has_no_path(vertices):
    """Also where no sentence of the batch has as many vertices as symbols."""
    emissions, transitions = random_graphs(torch.tensor([vertices]), 5)
    targets = Paths.of(torch.tensor([[5, 6, 7]]), torch.tensor([vertices]))
    actual = posterior(emissions, transitions, targets)
    assert not targets.reachable.any() and actual.total < -1e20
    assert not actual.visits.any() and not actual.transitions.any()
    assert best_path(emissions, transitions, targets).max() < vertices


def test_padding_and_other_sentences_of_a_batch_change_nothing():
    emissions, transitions = random_graphs(VERTICES, 5)
    together = posterior(emissions, transitions, PATHS)
    together_path = best_path(emissions, transitions, PATHS)
    for row in REACHABLE:
        count, vertices = int(PATHS.counts[row]), int(VERTICES[row])
        one = slice(row, row + 1)
        alone = emissions[one, :vertices, :count], transitions[one, :vertices, :vertices]
        single = Paths(PATHS.symbols[one, :count], VERTICES[one])
        actual = posterior(*alone, single)
        assert actual.total.item() == pytest.approx(together.total[row].item(), rel=1e-12)
        assert torch.allclose(actual.visits[0], together.visits[row, :vertices, :count], atol=1e-12)
        assert torch.allclose(actual.transitions[0], together.transitions[row, :vertices, :vertices], atol=1e-12)
        assert best_path(*alone, single)[0].tolist() == together_path[row, :count].tolist()
