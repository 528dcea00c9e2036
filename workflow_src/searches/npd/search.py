"""Noisy parallel decoding with latents: z = mean + temperature x deviation x noise; each z gives its best symbols."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import (
    draw_latents,
    join_batches,
    noise_table,
    read_symbols,
    winners,
    winners_pass,
)
from workflow_src.decoding.latent import predicts_lengths
from workflow_src.decoding.passes import Pass
from workflow_src.decoding.ranking import ROWS
from workflow_src.decoding.settings import RESCORER
from workflow_src.nn.layers import with_padding
from workflow_src.searches.npd import NpdSettings
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, Networks, SourceLatentModel, wide


class DrawsPass(nn.Module):
    """Source (B, S) -> outputs (B * draws, N), padded, and the mean log-probability of their symbols, else 0."""

    noise: Tensor

    def __init__(self, model: SourceLatentModel, settings: NpdSettings, scored: bool):
        super().__init__()
        self.model, self.settings, self.scored = model, settings, scored
        table = noise_table(settings.draws, model.config.max_positions, model.config.latent_dim, settings.search_seed)
        # In the model's own precision, so that a graph needs no cast.
        self.register_buffer("noise", table.to(model.output_bias, non_blocking=True), persistent=False)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        memory, z = draw_latents(self.model, self.model.encode(source), self.noise, self.settings.temperature)
        # Where latents determine lengths, draws of one sentence differ in length, also in a graph of single sentences.
        several = self.settings.draws > 1 and predicts_lengths(self.model)
        with with_padding() if several else contextlib.nullcontext():
            logits, mask = self.model.decode(memory, z)
        return read_symbols(self.model, wide(logits), mask, self.scored)


def _pass(model: SourceLatentModel, settings: NpdSettings, scored: bool) -> DrawsPass:
    """The pass, with scores also where they rank candidates: without a rescorer."""
    return DrawsPass(model, settings, scored or settings.rescorer is None)


def program(networks: Networks, settings: NpdSettings, scored: bool) -> Pass:
    return winners_pass(_pass(networks[MODEL], settings, scored), networks.get(RESCORER), scored)


@torch.no_grad()
def run(
    models: Networks, source: Tensor, settings: NpdSettings, scored: bool = True, _trace: bool = False
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking."""
    network = _pass(models[MODEL], settings, scored)
    # At most ROWS candidates are decoded together.
    chunks = [network(chunk) for chunk in source.split(max(1, ROWS // settings.draws))]
    return winners(*join_batches(chunks), source, models.get(RESCORER), scored)
