"""Figures on dev while a fully non-autoregressive model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.ctc import slot_logits
from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.objective import output_loss, training_slots
from workflow_src.losses.common import collapsed, gaussian_kl
from workflow_src.types import Batch, DevSet, Hypotheses, Validation

if TYPE_CHECKING:
    from workflow_src.families.nat.model import NonAutoregressiveModel


def validate(dev: DevSet, objective: NatObjectiveConfig, _base: None = None) -> Validation:
    """Loss in nats a target subword, and BLEU of the best symbols.

    With CTC, the share of targets without an alignment; where lengths are predicted, the share of exact ones, and the
    loss is that of the reference's length. With latents, the loss is that at the posterior mean and has the KL added,
    which is also reported by itself, a source position; `dev_bleu` is that of the prior mean and `dev_bleu_posterior`
    that of the posterior mean of the reference, at the same lengths. Latents that carry nothing have a KL near 0
    and no difference of the two BLEUs, `dev_bleu_carried`.

    BLEU selects weights: the loss rises on dev while BLEU rises.
    """

    @torch.no_grad()
    def figures(model: NonAutoregressiveModel) -> dict[str, float]:
        results = dev.over_batches(lambda batch: _measured(model, objective, batch))
        sums = {name: sum(of_batch[name] for of_batch, _ in results) for name in results[0][0]}
        measured = {"dev_loss": (sums["nll"] + sums["kl"]) / sums["words"]}
        if model.length is None:
            measured["dev_unreachable"] = sums["unreachable"] / sums["sentences"]
        else:
            measured["dev_length_accuracy"] = sums["exact"] / sums["sentences"]
        measured["dev_bleu"] = dev.bleu(lambda source: best_outputs(model, source))
        if model.latents is not None:
            translations = {row: tokens for _, of_batch in results for row, tokens in of_batch.items()}
            posterior = dev.bleu_of([translations[row] for row in range(dev.sentences)])
            measured["dev_kl"] = sums["kl"] / sums["positions"]
            measured["dev_bleu_posterior"] = posterior
            measured["dev_bleu_carried"] = posterior - measured["dev_bleu"]
        return measured

    return Validation(figures, "dev_bleu", fault=lambda measured: collapsed(measured) if "dev_kl" in measured else None)


def _measured(
    model: NonAutoregressiveModel, objective: NatObjectiveConfig, batch: Batch
) -> tuple[dict[str, float], dict[int, list[int]]]:
    """Sums over a batch, and with latents the translations from the posterior mean by row of the corpus."""
    memory, z, kl = model.encode(batch.source), None, 0.0
    translations: dict[int, list[int]] = {}
    slots = training_slots(model, batch)
    if model.latents is not None:
        z, deviation = model.posterior(memory, batch.target)
        kl = float(gaussian_kl(z, deviation, *model.prior(memory))[memory.mask].sum())
    hidden, mask = model.hidden(memory, slots, z)
    if z is not None and model.length is not None:
        # At lengths that the prior has too: the reference's would count for the latents.
        free_hidden, free_mask = model.hidden(memory, z=z)
        translations = dict(zip(batch.indices, _words(model, model.logits(free_hidden), free_mask), strict=True))
    elif z is not None:
        translations = dict(zip(batch.indices, _words(model, model.logits(hidden), mask), strict=True))
    nll, _, output_figures = output_loss(objective, model, hidden, mask, batch.target)
    exact = 0 if model.length is None else int((model.slots(memory) == batch.target_lengths).sum())
    sums = {
        "nll": float(nll),
        "kl": kl,
        "words": batch.num_target_words,
        "positions": int(memory.mask.sum()),
        "sentences": len(mask),
        "unreachable": round(float(output_figures.get("unreachable", 0)) * len(mask)),
        "exact": exact,
    }
    return sums, translations


def best_outputs(model: NonAutoregressiveModel, source: Tensor) -> Hypotheses:
    """The best symbol of every slot, without scores."""
    logits, mask = slot_logits(model, source)
    return Hypotheses(_words(model, logits, mask), [0.0] * len(source))


def _words(model: NonAutoregressiveModel, logits: Tensor, mask: Tensor) -> list[list[int]]:
    return unpadded(model.output(logits.argmax(-1), mask))
