"""Greedy decoding of latent alignments (Graves et al. 2006, best path decoding)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.ctc import collapsed, mean_log_probability, slot_logits
from workflow_src.searches.ctc_greedy import CtcGreedySettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses


@torch.no_grad()
def ctc_greedy(model, source: Tensor, blank_penalty: float = 0.0, scored: bool = True) -> Hypotheses:
    """Translate source (B, S); scores are mean log-probabilities of a slot's symbol, 0 unless `scored`."""
    logits, mask = slot_logits(model, source, blank_penalty)
    best = logits.argmax(-1)
    scores = mean_log_probability(logits, best, mask) if scored else [0.0] * len(source)
    return Hypotheses(collapsed(best, mask, model.blank), scores)


def run(
    models: Mapping[str, Any],
    source: Tensor,
    settings: CtcGreedySettings,
    scored: bool = True,
    trace: bool = False,
) -> Hypotheses:
    return ctc_greedy(models[MODEL], source, settings.blank_penalty, scored)
