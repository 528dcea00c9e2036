"""Figures on dev while a fully non-autoregressive model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.ctc import slot_logits
from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.objective import output_loss, training_slots
from workflow_src.losses.common import collapsed, exact_lengths, gaussian_kl
from workflow_src.losses.ctc import Lattice
from workflow_src.types import PAD, Batch, DevFigures, Hypotheses, Mean, Measured

if TYPE_CHECKING:
    from workflow_src.families.nat.model import NonAutoregressiveModel


def validate(config: NatObjectiveConfig, _base: None = None) -> DevFigures:
    """Loss in nats a target subword, and BLEU of the best symbols.

    With CTC, the share of targets without an alignment, which the loss leaves out; where lengths are predicted, the
    share of exact ones, and the loss is that of the reference's length. With latents, the loss is that at the posterior
    mean and has the KL added, which is also reported by itself, a source position; `dev_bleu` is that of the prior mean
    and `dev_bleu_posterior` that of the posterior mean of the reference, at the same lengths. Latents that carry
    nothing have a KL near 0 and no difference of the two BLEUs, `dev_bleu_carried`.

    BLEU selects weights: the loss rises on dev while BLEU rises.
    """

    def measure(model: NonAutoregressiveModel, batch: Batch, _keys: Tensor) -> Measured:
        memory, z = model.encode(batch.source), None
        means: dict[str, Mean] = {}
        outputs: dict[str, list[list[int]]] = {}
        kl = torch.zeros(len(batch.target), device=batch.target.device)
        if model.latents is not None:
            z, deviation = model.posterior(memory, batch.target, memory.mask)
            kl = (gaussian_kl(z, deviation, *model.prior(memory, memory.mask)) * memory.mask).sum(1)
            means["dev_kl"] = kl.sum(), memory.mask.sum()
        hidden, mask = model.hidden(memory, training_slots(model, batch), z)
        if z is not None:
            # At lengths that the prior has too: the reference's would count for the latents.
            free_hidden, free_mask = (hidden, mask) if model.length is None else model.hidden(memory, z=z)
            outputs["dev_bleu_posterior"] = unpadded(model.read_symbols(model.logits(free_hidden), free_mask, False)[0])
        nll, _, _ = output_loss(config, model, hidden, mask, batch.target)
        if model.length is None:
            reachable = Lattice(batch.target, mask.sum(1)).reachable
            means["dev_unreachable"] = (~reachable).sum(), len(mask)
        else:
            reachable = torch.ones_like(mask[:, 0])
            means["dev_length_accuracy"] = exact_lengths(model.slots(memory), batch)
        words = (batch.target != PAD).sum(1)
        means["dev_loss"] = nll + (kl * reachable).sum(), (words * reachable).sum()
        return Measured(means, outputs)

    return DevFigures(
        measure,
        {"dev_bleu": best_outputs},
        "dev_bleu",
        differences={"dev_bleu_carried": ("dev_bleu_posterior", "dev_bleu")},
        fault=lambda figures: collapsed(figures) if "dev_kl" in figures else None,
    )


def best_outputs(model: NonAutoregressiveModel, source: Tensor) -> Hypotheses:
    """The best symbol of every slot, without scores."""
    logits, mask = slot_logits(model, model.encode(source))
    outputs, scores = model.read_symbols(logits, mask, scored=False)
    return Hypotheses(unpadded(outputs), scores.tolist())
