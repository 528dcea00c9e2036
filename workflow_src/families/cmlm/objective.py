"""The loss of the conditional masked language model (Ghazvininejad et al. 2019, sections 2.2 and 2.3).

Of a target of T subwords, m are masked: m uniform in 1 … T, and every choice of m positions as likely as any other.
Summed over a batch and divided by its masked subwords:
    label-smoothed cross-entropy of the masked subwords, given the others and x  +  length loss
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.families.cmlm import CmlmObjectiveConfig
from workflow_src.losses.common import cross_entropy_at, length_loss
from workflow_src.losses.draws import COUNT, WHICH, sentence_keys, subset, uniform
from workflow_src.types import PAD, Batch, LossTerms, Mean, TrainingContext, cells

if TYPE_CHECKING:
    from workflow_src.families.cmlm.model import MaskedLanguageModel
    from workflow_src.nn.layers import Memory


def masked_loss(
    model: MaskedLanguageModel, batch: Batch, context: TrainingContext, config: CmlmObjectiveConfig
) -> LossTerms:
    # On the CPU, which needs the number of masked subwords.
    keys, lengths = sentence_keys(batch.on_cpu, context.seed), batch.target_lengths
    masked = masked_places(keys, lengths, batch.target.size(1))
    memory = model.encode(batch.source)
    loss, nll = masked_cross_entropy(model, memory, batch.target, masked, config.label_smoothing)
    length, exact = length_loss(model.length, memory, batch, config.length_smoothing)
    places = int(masked.sum())
    # Where all targets are empty, nothing is masked.
    count = max(1, places)
    figures: dict[str, Tensor | Mean] = {
        "nll": nll / count,
        "length_nll": (length.detach(), len(batch.target)),
        "length_accuracy": exact,
        "masked": (places, int(lengths.sum())),
    }
    return LossTerms((loss + config.length_weight * length) / count, count, figures)


def masked_places(keys: Tensor, lengths: Tensor, width: int) -> Tensor:
    """The mask (B, width) of masked places of targets of lengths (B,), from random keys (B,) of sentences."""
    # The draw is below 1, so that the number is at most the length.
    count = (uniform(keys, (1,), COUNT)[:, 0] * lengths).floor().long() + 1
    return subset(keys, lengths, count, width, WHICH)


def masked_cross_entropy(
    model: MaskedLanguageModel, memory: Memory, target: Tensor, masked: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Sums over masked places (B, T) of target (B, T): the label-smoothed loss, and -log p in nats without gradient.

    Where `masked` is on a GPU, the CPU waits to read it.
    """
    learned = cells(masked, target.device)
    masked = masked.to(target.device, non_blocking=True)
    hidden = model.states(memory, torch.where(masked, model.mask_symbol, target), target != PAD)
    return cross_entropy_at(learned, hidden, model.target_embedding.weight, model.output_bias, target, smoothing)
