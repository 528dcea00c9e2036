"""The loss of the fully non-autoregressive model (Gu & Kong 2021, equations 1, 3 and 4).

Summed over a batch and divided by its target subwords, where n-gram matches do not replace it (`losses/matches.py`):
    -log p(y|z,x)  +  sum_s max(b, KL_s)  +  length loss
The first term is CTC, aligned cross-entropy or cross-entropy; the second is there with latents z ~ q(z|x,y), one sample
a sentence, KL_s summed over the latent's dimensions at one source position and b the budget; the third where lengths
are predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.glance import shown_symbols
from workflow_src.losses.axe import axe_loss
from workflow_src.losses.common import budget, cross_entropy_at, glanced_share, length_loss
from workflow_src.losses.ctc import ctc_loss
from workflow_src.losses.draws import sentence_keys
from workflow_src.losses.latents import sampled_latents
from workflow_src.losses.matches import match_score
from workflow_src.nn.copying import NOT_SHOWN
from workflow_src.types import PAD, Batch, Cells, LossTerms, Mean, TrainingContext, cells

if TYPE_CHECKING:
    from workflow_src.families.nat.model import NonAutoregressiveModel


def nat_loss(
    model: NonAutoregressiveModel, batch: Batch, context: TrainingContext, config: NatObjectiveConfig
) -> LossTerms:
    """The loss of `nat`: of the output, of latents and of lengths.

    Targets that have no alignment with the slots of their source add nothing; the figure `unreachable` is their share.
    """
    count = batch.num_target_words
    draws = model.latents is not None or config.glance != "none"
    keys = sentence_keys(batch, context.seed) if draws else None
    memory = model.encode(batch.source)
    figures: dict[str, Tensor | float | Mean] = {}
    terms, z = [], None
    if model.latents is not None:
        assert keys is not None, "drawing needs keys"
        z, kl = sampled_latents(model, memory, batch, keys)
        free = budget(config, context.progress)
        terms.append(kl.clamp(min=free).sum())
        figures |= {"kl": (kl.detach().sum(), len(kl)), "kl_budget": free}
    slots = training_slots(model, batch)
    real = batch.cells(slots)
    share = glanced_share(config.glance_share, config.glance_end, context.progress)
    shown = None
    if config.glance != "none":
        assert keys is not None, "drawing needs keys"
        shown = shown_symbols(config, model, memory, slots, z, batch.target, keys, share, real)
        glanced = (shown != NOT_SHOWN).sum() if shown is not None else 0
        figures |= {"glanced": (glanced, int(slots.sum()))}
    hidden, mask = model.hidden(memory, slots, z, shown)
    if config.ngrams:
        return matching_loss(model, hidden, mask, batch, config.ngrams)
    if model.config.loss == "ce":
        # An empty target has a slot, and nothing to learn there.
        real = batch.cells(batch.target_lengths)
    nll, learned, output_figures = output_loss(config, model, hidden, mask, batch.target, shown, real)
    terms.insert(0, learned)
    figures |= {"nll": nll / count, **output_figures}
    if model.length is not None:
        length, exact = length_loss(model.length, memory, batch)
        terms.append(config.length_weight * length)
        figures |= {"length_nll": (length.detach(), len(batch.target)), "length_accuracy": exact}
    return LossTerms(sum(terms[1:], terms[0]) / count, count, figures)


def matching_loss(model: NonAutoregressiveModel, hidden: Tensor, mask: Tensor, batch: Batch, size: int) -> LossTerms:
    """1 - F1 of the expected matches of n-grams of `size`, a sentence; the figure `matches` is F1."""
    weight, bias = model.target_embedding.weight, model.symbol_bias()
    scores = match_score(hidden, weight, bias, mask, batch.target, model.blank, size)
    count = len(batch.target)
    return LossTerms((1 - scores).sum() / count, count, {"matches": scores.detach().mean()})


def training_slots(model: NonAutoregressiveModel, batch: Batch) -> Tensor:
    """Slots (B,) on the CPU: those of the source, or the reference's length where the model predicts lengths."""
    if model.length is None:
        return model.slots_of(batch.source_lengths)
    return batch.output_lengths


def output_loss(
    config: NatObjectiveConfig,
    model: NonAutoregressiveModel,
    hidden: Tensor,
    mask: Tensor,
    target: Tensor,
    shown: Tensor | None = None,
    real: Cells | None = None,
) -> tuple[Tensor, Tensor, dict[str, Mean]]:
    """-log p(y|z,x) summed over the batch, without gradient and smoothing; the loss that is learned; figures.

    hidden (B, N, D) at the slots of mask (B, N), target (B, T). Cross-entropy learns nothing of symbols that are shown;
    the other losses align all slots, whose cells are `real`; without them, the CPU waits to read the mask.
    """
    weight, bias = model.target_embedding.weight, model.output_bias
    if model.config.loss == "ctc":
        losses, nll, reachable = ctc_loss(hidden, weight, bias, mask, target, model.blank, real, config.label_smoothing)
        return nll.sum(), losses.sum(), {"unreachable": ((~reachable).sum(), len(reachable))}
    if model.config.loss == "axe":
        penalty, smoothing = config.skip_penalty, config.label_smoothing
        losses, nll = axe_loss(hidden, weight, bias, mask, target, model.blank, penalty, real, smoothing)
        return nll.sum(), losses.sum(), {}
    labels = target[:, : mask.size(1)]
    real = cells(mask & (labels != PAD), mask.device) if real is None else real
    not_shown = None if shown is None else shown == NOT_SHOWN
    smooth, nll = cross_entropy_at(real, hidden, weight, bias, labels, config.label_smoothing, not_shown)
    return nll, smooth, {}
