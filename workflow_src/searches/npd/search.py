"""Noisy parallel decoding with latents: z = mean + temperature x deviation x noise; each z gives its best symbols."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from workflow_src.decoding.candidates import draw_latents, noise_table
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.nn.models import LatentModel
from workflow_src.types import Networks


class NoisyParallel(SearchModule):
    noise: Tensor

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__(networks, settings, scored)
        config = self.model.config
        table = noise_table(settings.draws, config.max_positions, config.latent_dim, settings.search_seed)
        # In the model's own precision, so that a graph needs no cast.
        self.register_buffer("noise", table.to(self.model.output_bias, non_blocking=True), persistent=False)

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        model: LatentModel = self.model
        memory, z = draw_latents(model, self.encode(source), self.noise, self.settings.temperature)
        return model.read(memory, z, memory.mask, self.choice(), self.ranks)
