"""Losses that objectives share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from workflow_src.losses.settings import Budget
from workflow_src.nn.layers import Memory
from workflow_src.nn.length import LengthHead
from workflow_src.nn.models import Model
from workflow_src.types import Batch, Cells, Mean, wide

# Cells of the (rows, V) matrix handled at a time: it should stay in a CPU's caches, and keep a GPU busy.
CPU_CELLS, GPU_CELLS = 2**20, 2**27
# Positions whose logits over the vocabulary are held at once, where outputs are scored.
POSITIONS = 512


def block_rows(hidden: Tensor, classes: int) -> int:
    """Rows of `hidden` whose logits over `classes` are held at a time."""
    # Fewer rows read the whole output matrix too often.
    return max(256, (GPU_CELLS if hidden.is_cuda else CPU_CELLS) // classes)


def normalisers_of(model: Model, hidden: Tensor, mask: Tensor) -> Tensor:
    """Logarithms (B, N) of the sums of exp(logits) of states (B, N, D) at positions of mask (B, N), 0 elsewhere."""
    blocks = [wide(model.logits(block)).logsumexp(-1) for block in hidden[mask].split(POSITIONS)]
    normalisers = wide(hidden).new_zeros(mask.shape)
    normalisers[mask] = torch.cat(blocks)
    return normalisers


# Samples of the latents of a sentence in the ELBO on dev.
DEV_SAMPLES = 4


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    smoothing: float,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sums over N positions of the label-smoothed loss and of the plain negative log-likelihood, in nats.

    hidden (N, D), output projection weight (V, D) and bias (V,), labels (N,); `counted` (N,) bool are the positions
    that are summed, all by default: the CPU need not know their number. Smoothing spreads `smoothing` evenly
    over all V classes (Szegedy et al. 2016, section 7). The second value carries no gradient.

    Logits are never held for all positions at once: gradients are computed with the loss, a block of rows at a time.
    torch.nn.functional.linear_cross_entropy (PyTorch 2.13) gives the same values; on a CPU it takes 1.1 to 2.4 times
    the time and three times the memory (medians of the CPU time of forward and backward, the two in turns, in one
    thread: 2,000 positions, width 128 with 4,000 classes and 512 with 32,000, float32 and bfloat16).
    """
    return _LinearCrossEntropy.apply(hidden, weight, bias, labels, smoothing, counted)


def cross_entropy_at(
    selected: Cells,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    smoothing: float = 0.0,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` at the `selected` cells of hidden (B, N, D), labels and `counted` (B, N); 0 for none."""
    if not len(selected[0]):
        zero = hidden.sum() * 0
        return zero, zero.detach()
    counted = None if counted is None else counted[selected]
    return smoothed_cross_entropy(hidden[selected], weight, bias, labels[selected], smoothing, counted)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing, counted):
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        classes = weight.size(0)
        rows = block_rows(hidden, classes)
        narrow_hidden, narrow_weight = hidden.to(dtype), weight.to(dtype)
        grad_hidden = torch.empty_like(narrow_hidden)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        smooth_total, nll_total = 0.0, 0.0
        with torch.autocast(device, enabled=False):
            for start in range(0, hidden.size(0), rows):
                block, targets = narrow_hidden[start : start + rows], labels[start : start + rows, None]
                logits = wide(block @ narrow_weight.T) + bias
                probabilities = logits.softmax(-1)
                top, best = logits.max(-1, keepdim=True)
                # The most probable class has p >= 1/V, so its logarithm is safe.
                normaliser = top - probabilities.gather(1, best).log()
                nll, spread = normaliser - logits.gather(1, targets), normaliser - logits.mean(1, keepdim=True)
                if counted is not None:
                    nll, spread = (x * counted[start : start + rows, None] for x in (nll, spread))
                nll_sum = nll.sum()
                nll_total = nll_total + nll_sum
                smooth_total = smooth_total + (1 - smoothing) * nll_sum + smoothing * spread.sum()
                # d loss / d logits = p - (1 - s) onehot - s / V
                gradient = probabilities.sub_(smoothing / classes)
                gradient.scatter_add_(1, targets, torch.full_like(targets, smoothing - 1, dtype=gradient.dtype))
                if counted is not None:
                    gradient *= counted[start : start + rows, None]
                grad_bias += gradient.sum(0)
                narrow_gradient = gradient.to(dtype)
                torch.mm(narrow_gradient, narrow_weight, out=grad_hidden[start : start + rows])
                grad_weight += narrow_gradient.T @ block
        ctx.save_for_backward(grad_hidden.to(hidden.dtype), grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll_total)
        return smooth_total, nll_total

    @staticmethod
    def backward(ctx, scale, _):
        return *(gradient * scale for gradient in ctx.saved_tensors), None, None, None


def gaussian_kl(mean_q: Tensor, deviation_q: Tensor, mean_p: Tensor, deviation_p: Tensor) -> Tensor:
    """KL(q || p) of diagonal Gaussians, summed over the last axis: (..., Z) -> (...), in nats."""
    variance_ratio = (deviation_q / deviation_p) ** 2
    distance = ((mean_q - mean_p) / deviation_p) ** 2
    return 0.5 * (variance_ratio + distance - 1 - variance_ratio.log()).sum(-1)


def budget(config: Budget, progress: float) -> float:
    """Free nats a position: held for the first part of training, then falling linearly to the end value."""
    if progress < config.budget_hold or config.budget_hold == 1:
        return config.kl_budget
    if progress >= config.budget_until:
        return config.budget_end
    share = (progress - config.budget_hold) / (config.budget_until - config.budget_hold)
    return config.kl_budget + (config.budget_end - config.kl_budget) * share


def glanced_share(begin: float, end: float, progress: float) -> float:
    """The share of wrong symbols that glancing shows at `progress` of training, 0 … 1: linear from `begin` to `end`."""
    return begin + (end - begin) * progress


def collapsed(figures: Mapping[str, float]) -> str | None:
    """A warning about latents that carry nothing, from the figures of a validation; None where they carry something.

    Such latents have a KL below 0.1 nats, and the posterior mean of the reference gives less than 1 BLEU more than the
    prior's.
    """
    kl, gain = figures["dev_kl"], figures["dev_bleu_posterior"] - figures["dev_bleu"]
    if kl >= 0.1 or gain >= 1:
        return None
    return (
        f"the latents have collapsed: their KL on dev is {kl:.2g} nats, and the posterior mean gives {gain:+.1f} "
        "BLEU; keep more of the KL budget (objective.budget_end), or hold it for longer (objective.budget_hold, "
        "budget_until)"
    )


def exact_lengths(predicted: Tensor, batch: Batch) -> Mean:
    """The number of sentences whose predicted length (B,) is that of the target, and the number of sentences."""
    return (predicted == batch.target_lengths.to(predicted.device, non_blocking=True)).sum(), len(batch.target)


def length_loss(head: LengthHead, memory: Memory, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Mean]:
    """`length_cross_entropy` of a length head that reads source states."""
    return length_cross_entropy(head(memory), head.classes(memory, batch.target_lengths), smoothing)


def length_cross_entropy(scores: Tensor, classes: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Mean]:
    """Cross-entropy of the true length differences, summed over the batch, and the number predicted exactly with
    that of all.

    scores (B, classes) of a head, true classes (B,). With `smoothing`, labels are distributions proportional to a
    Gaussian of this deviation around the true class.
    """
    scores, labels = wide(scores), classes
    if smoothing:
        distance = torch.arange(scores.size(-1), device=scores.device) - classes[:, None]
        labels = (-0.5 * (distance / smoothing) ** 2).softmax(-1)
    loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    return loss, ((scores.argmax(-1) == classes).sum(), len(classes))
