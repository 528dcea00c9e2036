"""What is measured on dev while a fully non-autoregressive model trains."""

from __future__ import annotations

import torch
from torch import nn

from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.losses.ctc import ctc_loss
from workflow_src.searches.ctc_greedy.search import ctc_greedy
from workflow_src.types import Batch, DevSet, Validation


def validate(dev: DevSet, objective: NatObjectiveConfig, base: None = None) -> Validation:
    """Loss in nats a target token, the share of targets without an alignment, and BLEU of the best symbols.

    BLEU says which weights are best: the loss rises on dev while BLEU rises.
    """

    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        def measure(batch: Batch) -> tuple[float, int, int, int]:
            hidden, mask = model.hidden(model.encode(batch.source))
            weight, bias = model.target_embedding.weight, model.output_bias
            losses, reachable = ctc_loss(hidden, weight, bias, mask, batch.target, model.blank)
            return float(losses.sum()), batch.num_target_tokens, int((~reachable).sum()), len(reachable)

        loss, tokens, unreachable, sentences = map(sum, zip(*dev.over_batches(measure), strict=True))
        return {
            "dev_loss": loss / tokens,
            "dev_unreachable": unreachable / sentences,
            "dev_bleu": dev.bleu(lambda source: ctc_greedy(model, source, scored=False)),
        }

    return Validation(figures, "dev_bleu")
