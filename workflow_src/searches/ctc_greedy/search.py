"""Greedy decoding of latent alignments (Graves et al. 2006, best path decoding)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workflow_src.decoding.ctc import collapse, slot_logits
from workflow_src.decoding.passes import Pass
from workflow_src.losses.ctc_origins import source_positions
from workflow_src.runtime.device import on_cpu
from workflow_src.searches.ctc_greedy import CtcGreedySettings
from workflow_src.spec import MODEL
from workflow_src.types import AlignedLatentModel, Hypotheses, Networks


@torch.no_grad()
def ctc_greedy(
    model: AlignedLatentModel, source: Tensor, blank_penalty: float = 0.0, scored: bool = True
) -> Hypotheses:
    """Translate source (B, S); scores are mean log-probabilities of a slot's symbol, 0 unless `scored`."""
    best, slots, *scores = (output.tolist() for output in on_cpu(*GreedyPass(model, blank_penalty, scored)(source)))
    outputs = [collapse(row[:count], model.blank) for row, count in zip(best, slots, strict=True)]
    return Hypotheses(outputs, scores[0] if scored else [0.0] * len(outputs))


class GreedyPass(nn.Module):
    """Source (B, S) -> the best symbol of every slot (B, N), slots (B,) and, if `scored`, their mean log p (B,)."""

    def __init__(self, model: AlignedLatentModel, blank_penalty: float, scored: bool):
        super().__init__()
        self.model, self.blank_penalty, self.scored = model, blank_penalty, scored

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        logits, mask = slot_logits(self.model, source, self.blank_penalty)
        best = logits.argmax(-1)
        if not self.scored:
            return best, mask.sum(1)
        gains = (logits.amax(-1) - logits.logsumexp(-1)) * mask
        return best, mask.sum(1), gains.sum(1) / mask.sum(1)


def program(networks: Networks, settings: CtcGreedySettings, scored: bool) -> Pass:
    model: AlignedLatentModel = networks[MODEL]
    return Pass(GreedyPass(model, settings.blank_penalty, scored), lambda slots: collapse(slots, model.blank))


def run(
    models: Networks,
    source: Tensor,
    settings: CtcGreedySettings,
    scored: bool = True,
    _trace: bool = False,
) -> Hypotheses:
    return ctc_greedy(models[MODEL], source, settings.blank_penalty, scored)


@torch.no_grad()
def origins(
    models: Networks,
    source: Tensor,
    settings: CtcGreedySettings,
    outputs: Sequence[Sequence[Sequence[int]]],
) -> list[list[list[int]]]:
    """The source position that each subword of outputs of source (B, S) was read off."""
    logits, mask = slot_logits(models[MODEL], source, settings.blank_penalty)
    return source_positions(models[MODEL], source, logits, mask.sum(1), outputs)
