"""What is measured on dev while an autoregressive Transformer trains."""

from __future__ import annotations

import torch
from torch import nn

from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.searches.greedy.search import greedy
from workflow_src.types import Batch, DevSet, Validation


def validate(dev: DevSet, objective: CrossEntropyConfig, base: None = None) -> Validation:
    @torch.no_grad()
    def figures(model: nn.Module) -> dict[str, float]:
        def measure(batch: Batch) -> tuple[float, int]:
            return float(model.log_probabilities(batch.source, batch.target).sum()), batch.num_target_tokens

        total, count = 0.0, 0
        for found, tokens in dev.over_batches(measure):
            total -= found
            count += tokens
        return {"dev_loss": total / count, "dev_bleu": dev.bleu(lambda source: greedy(model, source))}

    return Validation(figures, "dev_bleu")
