"""The best symbol of every position, at the most probable lengths (Gu et al. 2018; Ghazvininejad et al. 2020 for axe).

Lengths and the copy of the source are those of the model; outputs of several lengths are ranked by a rescorer, or by
the log-probability of their symbols, divided by their number ** `length_penalty`: the mean, by default.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import likely_lengths, read_symbols, winners, winners_pass
from workflow_src.decoding.passes import Pass
from workflow_src.decoding.settings import RESCORER
from workflow_src.nn.layers import with_padding
from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, Networks, OnePassModel, wide


class ArgmaxPass(nn.Module):
    """Source (B, S) -> outputs (B * lengths, N), padded, and the mean log-probability of their symbols, else 0."""

    def __init__(self, model: OnePassModel, settings: ArgmaxSettings, scored: bool):
        super().__init__()
        self.model, self.settings, self.scored = model, settings, scored

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        model, settings = self.model, self.settings
        memory, lengths = likely_lengths(model, model.encode(source), settings)
        # Lengths of one sentence differ, also where a graph is for single sentences.
        with with_padding() if settings.lengths > 1 else contextlib.nullcontext():
            hidden, mask = model.hidden(memory, lengths)
        return read_symbols(model, wide(model.logits(hidden)), mask, self.scored)


def _pass(model: OnePassModel, settings: ArgmaxSettings, scored: bool) -> ArgmaxPass:
    """The pass, with scores also where they rank several lengths: without a rescorer."""
    return ArgmaxPass(model, settings, (settings.lengths > 1 and settings.rescorer is None) or scored)


def program(networks: Networks, settings: ArgmaxSettings, scored: bool) -> Pass:
    module = _pass(networks[MODEL], settings, scored)
    return winners_pass(module, networks.get(RESCORER), scored, settings.length_penalty)


@torch.no_grad()
def run(
    models: Networks, source: Tensor, settings: ArgmaxSettings, scored: bool = True, _trace: bool = False
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking."""
    outputs, scores = _pass(models[MODEL], settings, scored)(source)
    return winners(outputs, scores, source, models.get(RESCORER), scored, settings.length_penalty)


@torch.no_grad()
def at_lengths(models: Networks, source: Tensor, _settings: ArgmaxSettings, lengths: Tensor) -> Hypotheses:
    """Translate source (B, S) at lengths (B,), such as the references'; scores as without a rescorer."""
    model: OnePassModel = models[MODEL]
    hidden, mask = model.hidden(model.encode(source), lengths)
    return winners(*read_symbols(model, wide(model.logits(hidden)), mask, True), source, None)
