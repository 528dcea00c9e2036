"""CTC against enumeration of all alignments, and against torch's own loss."""

from __future__ import annotations

import itertools

import pytest
import torch

from workflow_src.decoding.ctc import collapse
from workflow_src.losses.ctc import Lattice, ctc_loss, occupancies, own_symbols, viterbi

VOCABULARY, WIDTH = 6, 5
BLANK = VOCABULARY - 1
SLOTS = torch.tensor([5, 3, 4, 2, 4])
# Equal neighbours, fewer tokens than slots, no token, no alignment at all, exactly as many slots as needed.
TARGET = torch.tensor([[1, 1, 2], [3, 0, 0], [0, 0, 0], [4, 4, 0], [2, 2, 3]])
MASK = torch.arange(5) < SLOTS[:, None]


def layer(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((len(SLOTS), 5, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def words(row: int) -> list[int]:
    return [token for token in TARGET[row].tolist() if token]


def alignments(row: int):
    paths = itertools.product(range(VOCABULARY), repeat=int(SLOTS[row]))
    return [path for path in paths if collapse(list(path), BLANK) == words(row)]


def log_probability(scores, row: int, path) -> torch.Tensor:
    return sum(scores[row, slot, symbol] for slot, symbol in enumerate(path))


def enumerated(scores) -> torch.Tensor:
    """-log p of every target; 0 where there is no alignment."""
    losses = []
    for row in range(len(SLOTS)):
        paths = [log_probability(scores, row, path) for path in alignments(row)]
        losses.append(-torch.logsumexp(torch.stack(paths), 0) if paths else torch.zeros((), dtype=torch.float64))
    return torch.stack(losses)


def test_loss_and_gradients_are_those_of_the_sum_over_all_alignments():
    hidden, weight, bias = layer()
    scores = (hidden @ weight.T + bias).log_softmax(-1)
    expected_losses = enumerated(scores)
    losses, _, reachable = ctc_loss(hidden, weight, bias, MASK, TARGET, BLANK)
    assert torch.allclose(losses, expected_losses, atol=1e-12)
    assert reachable.tolist() == [True, True, True, False, True]
    # Every sentence with a weight of its own, so that none hides another.
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    actual = torch.autograd.grad((losses * weights).sum(), [hidden, weight, bias])
    expected = torch.autograd.grad((expected_losses * weights).sum(), [hidden, weight, bias])
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, expected_gradient, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.01, 0.3])
def test_smoothed_loss_and_gradients_are_those_of_the_formula(smoothing):
    """(1 - s) loss(y) - s |y| mean over slots and symbols of log p; nothing where there is no alignment."""
    hidden, weight, bias = layer()
    scores = (hidden @ weight.T + bias).log_softmax(-1)
    plain = enumerated(scores)
    means = torch.stack([scores[row, : SLOTS[row]].mean() for row in range(len(SLOTS))])
    lengths = (TARGET != 0).sum(1)
    expected_losses = (1 - smoothing) * plain - smoothing * lengths * means * torch.tensor([1, 1, 1, 0, 1])
    losses, nll, _ = ctc_loss(hidden, weight, bias, MASK, TARGET, BLANK, smoothing=smoothing)
    assert torch.allclose(losses, expected_losses, atol=1e-12) and torch.allclose(nll, plain, atol=1e-12)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    actual = torch.autograd.grad((losses * weights).sum(), [hidden, weight, bias])
    expected = torch.autograd.grad((expected_losses * weights).sum(), [hidden, weight, bias])
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, expected_gradient, atol=1e-12)


def test_loss_is_that_of_torch_on_long_targets_over_many_blocks_of_rows(monkeypatch):
    monkeypatch.setattr("workflow_src.losses.common.CPU_CELLS", 64 * 40)
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(7, 60, 8, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(40, 8, generator=generator, dtype=torch.float64).requires_grad_()
    bias = torch.randn(40, generator=generator, dtype=torch.float64).requires_grad_()
    slots, lengths = torch.tensor([60, 50, 41, 33, 60, 12, 7]), torch.tensor([20, 25, 13, 9, 1, 3, 2])
    target = torch.randint(4, 39, (7, 25), generator=generator) * (torch.arange(25) < lengths[:, None])
    mask = torch.arange(60) < slots[:, None]
    losses, _, reachable = ctc_loss(hidden, weight, bias, mask, target, 39)
    scores = (hidden @ weight.T + bias).log_softmax(-1).transpose(0, 1)
    expected_losses = torch.nn.functional.ctc_loss(scores, target, slots, lengths, blank=39, reduction="none")
    assert reachable.all() and torch.allclose(losses, expected_losses, atol=1e-10)
    actual = torch.autograd.grad(losses.sum(), [hidden, weight, bias])
    expected = torch.autograd.grad(expected_losses.sum(), [hidden, weight, bias])
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert torch.allclose(gradient, expected_gradient, atol=1e-10)


def test_shares_of_a_slot_sum_to_one_and_are_nothing_at_padding():
    hidden, weight, bias = layer(1)
    scores = (hidden @ weight.T + bias).log_softmax(-1).detach()
    symbols = own_symbols(TARGET, BLANK)
    emissions = scores.gather(2, symbols[:, None].expand(-1, 5, -1))
    total, shares = occupancies(emissions, Lattice(TARGET, SLOTS))
    real = MASK & torch.tensor([True, True, True, False, True])[:, None]
    assert torch.allclose(shares.sum(-1), real.double(), atol=1e-12)
    assert torch.allclose(-total[real[:, 0]], enumerated(scores)[real[:, 0]], atol=1e-12)


def test_the_viterbi_path_is_the_most_probable_alignment_and_collapses_to_the_target():
    for seed in range(5):
        hidden, weight, bias = layer(seed)
        scores = (hidden @ weight.T + bias).log_softmax(-1).detach()
        symbols = own_symbols(TARGET, BLANK)
        paths = viterbi(scores.gather(2, symbols[:, None].expand(-1, 5, -1)), Lattice(TARGET, SLOTS))
        for row in (0, 1, 2, 4):
            path = symbols[row][paths[row, : SLOTS[row]]].tolist()
            assert collapse(path, BLANK) == words(row)
            best = max(float(log_probability(scores, row, alignment)) for alignment in alignments(row))
            assert float(log_probability(scores, row, path)) == pytest.approx(best, abs=1e-12)
        assert not paths[3].any() and not paths[~MASK].any()


def test_padding_changes_neither_loss_nor_gradient():
    hidden, weight, bias = layer(2)
    losses, *_ = ctc_loss(hidden, weight, bias, MASK, TARGET, BLANK)
    for row in range(len(SLOTS)):
        row_hidden = hidden[row : row + 1, : SLOTS[row]].detach().requires_grad_()
        alone, *_ = ctc_loss(
            row_hidden,
            weight,
            bias,
            MASK[row : row + 1, : SLOTS[row]],
            TARGET[row : row + 1, : max(1, len(words(row)))],
            BLANK,
        )
        assert alone.item() == pytest.approx(losses[row].item(), abs=1e-12)
        (together,) = torch.autograd.grad(losses[row], hidden, retain_graph=True)
        (single,) = torch.autograd.grad(alone.sum(), row_hidden)
        assert torch.allclose(together[row, : SLOTS[row]], single[0], atol=1e-12)
        assert not together[row, SLOTS[row] :].any()


def test_long_slots_do_not_overflow_single_precision():
    hidden = 30 * torch.randn(2, 400, WIDTH, generator=torch.Generator().manual_seed(0))
    weight, bias = (tensor.detach().float() for tensor in layer()[1:])
    target = torch.randint(1, 5, (2, 150), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 400, dtype=torch.bool)
    hidden.requires_grad_()
    losses, _, reachable = ctc_loss(hidden, weight, bias, mask, target, BLANK)
    in_float64 = (tensor.double() for tensor in (hidden, weight, bias))
    expected, *_ = ctc_loss(*in_float64, mask, target, BLANK)
    assert reachable.all() and torch.allclose(losses.double(), expected, rtol=1e-4)
    assert torch.isfinite(torch.autograd.grad(losses.sum(), hidden)[0]).all()
