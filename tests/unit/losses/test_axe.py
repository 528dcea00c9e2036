"""Aligned cross-entropy against all alignments, one by one."""

from __future__ import annotations

import math

import pytest
import torch

from workflow_src.losses.axe import axe_loss
from workflow_src.types import PAD

VOCABULARY, WIDTH = 6, 5
SKIP = VOCABULARY - 1
PREDICTIONS = torch.tensor([4, 2, 3, 1, 4, 3])
# As many, more and fewer tokens than predictions, none, one prediction for all, equal neighbours.
TARGET = torch.tensor([[1, 2, 3, 4], [3, 1, 2, 0], [0, 0, 0, 0], [4, 2, 1, 0], [2, 0, 0, 0], [2, 2, 3, 0]])
MASK = torch.arange(4) < PREDICTIONS[:, None]


def layer(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((len(TARGET), 4, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def alignments(tokens: int, predictions: int, i: int = 0, j: int = 0):
    """Every sequence of moves from no token and no prediction to all of them."""
    if (i, j) == (tokens, predictions):
        yield ()
    for move, (down, right) in {"align": (1, 1), "skip": (0, 1), "share": (1, 0)}.items():
        if i + down <= tokens and j + right <= predictions:
            for next_moves in alignments(tokens, predictions, i + down, j + right):
                yield ((move, i + down, j + right), *next_moves)


def cost(scores, row: int, path, penalty: float):
    """-log p of each move: tokens and predictions are counted from 1."""
    total = torch.zeros((), dtype=torch.float64)
    for move, i, j in path:
        prediction = scores[row, max(j, 1) - 1]
        if move == "skip":
            total = total - prediction[SKIP]
        else:
            total = total - (penalty if move == "share" else 1) * prediction[TARGET[row, i - 1]]
    return total


def enumerated(scores, penalty: float):
    losses = []
    for row in range(len(TARGET)):
        tokens = int((TARGET[row] != PAD).sum())
        paths = [cost(scores, row, path, penalty) for path in alignments(tokens, int(PREDICTIONS[row]))]
        losses.append(min(paths, key=torch.Tensor.item))
    return torch.stack(losses)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.3, 1.0, 5.0])
def test_loss_and_gradients_are_those_of_the_cheapest_of_all_alignments(penalty, seed):
    hidden, weight, bias = layer(seed)
    expected_losses = enumerated((hidden @ weight.T + bias).log_softmax(-1), penalty)
    losses, _ = axe_loss(hidden, weight, bias, MASK, TARGET, SKIP, penalty)
    assert torch.allclose(losses, expected_losses, rtol=0, atol=1e-12)
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    actual = torch.autograd.grad((losses * weights).sum(), [hidden, weight, bias])
    expected = torch.autograd.grad((expected_losses * weights).sum(), [hidden, weight, bias])
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.01, 0.3])
def test_smoothed_loss_and_gradients_are_those_of_the_formula(smoothing):
    """(1 - s) loss(y) - s |y| mean over predictions and symbols of log p."""
    hidden, weight, bias = layer()
    scores = (hidden @ weight.T + bias).log_softmax(-1)
    plain = enumerated(scores, 2.0)
    means = torch.stack([scores[row, : PREDICTIONS[row]].mean() for row in range(len(TARGET))])
    expected_losses = (1 - smoothing) * plain - smoothing * (TARGET != PAD).sum(1) * means
    losses, nll = axe_loss(hidden, weight, bias, MASK, TARGET, SKIP, 2.0, smoothing=smoothing)
    assert torch.allclose(losses, expected_losses, atol=1e-12) and torch.allclose(nll, plain, atol=1e-12)
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    actual = torch.autograd.grad((losses * weights).sum(), [hidden, weight, bias])
    expected = torch.autograd.grad((expected_losses * weights).sum(), [hidden, weight, bias])
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, expected_gradient, atol=1e-12)


def test_smoothing_is_that_of_cross_entropy_where_predictions_are_in_their_places():
    target = torch.tensor([[1, 2, 3]])
    hidden = 20 * torch.nn.functional.one_hot(target, VOCABULARY).double()
    weight, bias = torch.eye(VOCABULARY, dtype=torch.float64), torch.zeros(VOCABULARY, dtype=torch.float64)
    options = {"reduction": "sum", "label_smoothing": 0.1}
    cross_entropy = torch.nn.functional.cross_entropy(hidden[0], target[0], **options)
    losses, _ = axe_loss(hidden, weight, bias, torch.ones(1, 3, dtype=torch.bool), target, SKIP, 1.0, smoothing=0.1)
    assert float(losses) == pytest.approx(float(cross_entropy), abs=1e-12)


def test_predictions_in_their_places_cost_their_cross_entropy():
    """Right predictions that are nearly certain: nothing is skipped."""
    target = torch.tensor([[1, 2, 3]])
    hidden = 20 * torch.nn.functional.one_hot(target, VOCABULARY).double()
    weight, bias = torch.eye(VOCABULARY, dtype=torch.float64), torch.zeros(VOCABULARY, dtype=torch.float64)
    cross_entropy = torch.nn.functional.cross_entropy(hidden[0], target[0], reduction="sum")
    losses, _ = axe_loss(hidden, weight, bias, torch.ones(1, 3, dtype=torch.bool), target, SKIP, 1.0)
    assert float(losses) == pytest.approx(float(cross_entropy), abs=1e-12)
    # Moved by one: one prediction is skipped and the last token shares one. In their places, three tokens are wrong.
    moved = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :2]], 1)
    losses, _ = axe_loss(moved, weight, bias, torch.ones(1, 3, dtype=torch.bool), target, SKIP, 1.0)
    assert float(losses) == pytest.approx(math.log(VOCABULARY) + 20, abs=1e-6)


def test_neither_batch_nor_padding_changes_a_loss():
    hidden, weight, bias = layer(1)
    longer, mask = (
        torch.nn.functional.pad(hidden, (0, 0, 0, 3), value=7.0),
        torch.nn.functional.pad(MASK, (0, 3)),
    )
    together, _ = axe_loss(longer, weight, bias, mask, torch.nn.functional.pad(TARGET, (0, 2)), SKIP, 1.5)
    for row in range(len(TARGET)):
        words = TARGET[row][TARGET[row] != PAD][None]
        count = int(PREDICTIONS[row])
        single, _ = axe_loss(hidden[row : row + 1, :count], weight, bias, MASK[row : row + 1, :count], words, SKIP, 1.5)
        assert float(together[row]) == pytest.approx(float(single), abs=1e-12)


def test_many_predictions_in_half_of_the_digits_give_the_same_alignment():
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(2, 300, 16, generator=generator, dtype=torch.float64)
    weight, bias = torch.randn(40, 16, generator=generator, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    target, mask = torch.randint(3, 39, (2, 250), generator=generator), torch.ones(2, 300, dtype=torch.bool)
    exact, _ = axe_loss(hidden, weight, bias, mask, target, 39, 2.0)
    in_float32, _ = axe_loss(hidden.float(), weight.float(), bias.float(), mask, target, 39, 2.0)
    assert torch.allclose(in_float32.double(), exact, rtol=1e-5)
