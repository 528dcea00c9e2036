"""Losses over alignments of outputs with a target, which need only the probabilities of a sentence's own symbols.

With smoothing s, labels of a slot are a share s of all V symbols and the alignments' own ones (Gu & Kong 2021, appendix
A). A sentence's loss is
    (1 - s) loss(y)  -  s |y| mean over slots n and symbols v of log p_n(v)
which has the proportions of the authors' released code, where CTC is divided by |y| and logarithms are averaged. Where
each slot learns one word, this is the label smoothing of cross-entropy.

Logits are computed for a block of rows at a time, and again for their gradient, so that no tensor has a cell for each
slot and word of the vocabulary. Shapes: B sentences, N slots, R real slots of all sentences, T target positions,
U = T + 1 own symbols (the blank first), V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.common import block_rows
from workflow_src.types import PAD, Cells, cells, wide


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Losses of alignments, and their gradients by log-probabilities of own symbols (B, N, U).

    losses      (B,) in nats
    shares      (B, N, U): -d losses / d log-probabilities, 0 at slots that are not real
    counted     (B,) bool: sentences whose loss counts
    normalised  whether the shares of every real slot of these sentences sum to 1
    gradients   (B, …): d losses / d each of the tensors that `align` gets beside the log-probabilities
    """

    losses: Tensor
    shares: Tensor
    counted: Tensor
    normalised: bool = True
    gradients: tuple[Tensor, ...] = ()


def own_symbols(target: Tensor, blank: int) -> Tensor:
    """Ids (B, U) of the blank and of a sentence's tokens, from a padded target (B, T)."""
    return F.pad(target, (1, 0), value=blank)


def aligned_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    symbols: Tensor,
    align: Callable[..., Aligned],
    real: Cells | None = None,
    smoothing: float = 0.0,
    further: tuple[Tensor, ...] = (),
) -> tuple[Tensor, Tensor]:
    """The losses (B,) of `align`, which sums over alignments or chooses one: with `smoothing`, and without it and
    without a gradient.

    hidden (B, N, D) at slots where mask (B, N) is True, output projection weight (V, D) and bias (V,), symbols (B, U).
    `real` are the cells of the mask; without them, the CPU waits to read the mask.

    `align` gets the log-probabilities (B, N, U) and the `further` tensors (B, …), which learn by `Aligned.gradients`.
    Slots whose shares are all 0 get no gradient, where shares are not normalised and labels not smoothed.
    """
    real = cells(mask, mask.device) if real is None else real
    # An end symbol is no word, and padding is none.
    words = (symbols[:, 1:] != PAD).sum(1).to(bias.dtype)
    spread = smoothing * words / mask.sum(1).clamp(min=1)
    options = real, mask.shape, symbols, align, smoothing, spread
    return _LinearAligned.apply(hidden[real], weight, bias, *options, *further)


def own_log_probabilities(
    hidden: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, symbols: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of each slot's own symbols (R, U) and of its most probable one (R,), and normalisers (R,).

    hidden (R, D) of slots that belong to sentences `rows` (R,), symbols (B, U). Symbols whose bias is -inf are never
    the most probable.
    """
    log_probabilities, highest, normalisers = [], [], []
    for block, sentences in _blocks(hidden, rows, weight.size(0)):
        logits = wide(block @ weight.T) + bias
        normaliser = logits.logsumexp(-1, keepdim=True)
        log_probabilities.append(logits.gather(1, symbols[sentences]) - normaliser)
        highest.append(logits.amax(-1) - normaliser[:, 0])
        normalisers.append(normaliser[:, 0])
    return torch.cat(log_probabilities), torch.cat(highest), torch.cat(normalisers)


@torch.no_grad()
def own_emissions(
    hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, symbols: Tensor, real: Cells | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of own symbols (B, N, U), and of the most probable symbol of every slot (B, N).

    Both are 0 outside `mask`, whose cells are `real`. Arguments as `aligned_loss`.
    """
    real = cells(mask, mask.device) if real is None else real
    emissions, highest = bias.new_zeros((*mask.shape, symbols.size(1))), bias.new_zeros(mask.shape)
    own, best, _ = own_log_probabilities(hidden[real], weight, bias, real[0], symbols)
    emissions[real], highest[real] = own.to(emissions), best.to(highest)
    return emissions, highest


def _blocks(hidden: Tensor, rows: Tensor, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
    size = block_rows(hidden, classes)
    return zip(hidden.split(size), rows.split(size), strict=True)


class _LinearAligned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, real, shape, symbols, align, smoothing, spread, *further):
        rows = real[0]
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        narrow_hidden, narrow_weight = hidden.to(dtype), weight.to(dtype)
        with torch.autocast(device, enabled=False):
            log_probabilities, _, normalisers = own_log_probabilities(narrow_hidden, narrow_weight, bias, rows, symbols)
            emissions = log_probabilities.new_zeros((*shape, symbols.size(1)))
            emissions[real] = log_probabilities
            aligned = align(emissions, *further)
            spread = spread.to(normalisers) * aligned.counted
            smoothed = (1 - smoothing) * aligned.losses
            if smoothing:
                # The mean logit of a slot is that of the mean row of the matrix.
                means = wide(narrow_hidden) @ narrow_weight.mean(0, dtype=bias.dtype) + bias.mean() - normalisers
                smoothed = smoothed.index_add(0, rows, -spread[rows] * means)
            if any(ctx.needs_input_grad):
                ctx.normalised = aligned.normalised
                ctx.smoothing = smoothing
                ctx.slots = len(rows)
                shares, kept = aligned.shares[real], None
                if not (smoothing or aligned.normalised or hidden.is_cuda):
                    # A GPU would have to wait for their number.
                    kept = (shares.sum(-1) > 0).nonzero()[:, 0]
                    narrow_hidden, rows, normalisers, shares = (
                        tensor[kept] for tensor in (narrow_hidden, rows, normalisers, shares)
                    )
                ctx.save_for_backward(
                    narrow_hidden,
                    narrow_weight,
                    bias,
                    rows,
                    symbols,
                    normalisers,
                    shares,
                    aligned.counted,
                    spread,
                    kept,
                    *aligned.gradients,
                )
        plain = aligned.losses.detach().clone()
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx, scale, _):
        hidden, weight, bias, rows, symbols, normalisers, shares, counted, spread, kept_slots, *gradients = (
            ctx.saved_tensors
        )
        # d loss / d logits = p times the sum of shares - shares, of every sentence times its own weight; with
        # smoothing, 1 - s times that, and p - 1 / V at every slot times the sentence's spread.
        kept, classes = 1 - ctx.smoothing, weight.size(0)
        factors = (scale * counted)[rows, None]
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=bias.dtype)
        grad_bias = torch.zeros_like(bias)
        start = 0
        with torch.autocast(hidden.device.type, enabled=False):
            for block, sentences in _blocks(hidden, rows, weight.size(0)):
                end = start + len(block)
                gradient = (wide(block @ weight.T) + bias).sub_(normalisers[start:end, None]).exp_()
                if ctx.smoothing or not ctx.normalised:
                    total = 1.0 if ctx.normalised else shares[start:end].sum(-1, keepdim=True)
                    gradient.mul_(kept * total + spread[sentences, None])
                gradient.scatter_add_(1, symbols[sentences], -kept * shares[start:end])
                if ctx.smoothing:
                    gradient.sub_(spread[sentences, None] / classes)
                gradient.mul_(factors[start:end])
                grad_bias += gradient.sum(0)
                narrow_gradient = gradient.to(hidden.dtype)
                torch.mm(narrow_gradient, weight, out=grad_hidden[start:end])
                grad_weight += narrow_gradient.T @ block
                start = end
        grad_hidden = grad_hidden.to(grad_bias.dtype)
        if kept_slots is not None:
            grad_hidden = grad_hidden.new_zeros(ctx.slots, hidden.size(1)).index_copy(0, kept_slots, grad_hidden)
        grad_further = [gradient * (scale * counted).view(-1, *(1,) * (gradient.dim() - 1)) for gradient in gradients]
        return grad_hidden, grad_weight, grad_bias, *(None,) * 6, *grad_further
