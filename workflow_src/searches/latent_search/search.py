"""Latent search (Lee et al. 2020, section 4.4): several lengths, several samples of z, the best translation wins.

The most probable target lengths times draws from the prior p(z|x) give candidates, which are refined in parallel,
turned into words, stripped of duplicates and ranked: by an autoregressive model's log p(y|x) a symbol, computed for all
of them in one parallel pass, or without one by the model's own mean log p(y_t|z,x).

Where latents are those of source positions and determine the length, samples come first: each is refined, and then
decoded at the most probable lengths under its own p(l|z).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.refinement import open_refinement
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.nn.layers import Memory
from workflow_src.nn.length import LengthChoice
from workflow_src.nn.models import LatentModel
from workflow_src.nn.source_latents import SourceLatentModel
from workflow_src.runtime.device import on_cpu
from workflow_src.types import PAD, Networks


class LatentSearch(SearchModule):
    """Of equal scores the first candidate wins. With `mean_first`, the first sample of every length is the prior mean
    instead of a draw (our addition)."""

    def __init__(self, networks: Networks, settings: Any, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.refinement = open_refinement(networks, settings) if settings.steps else None
        self.steps = settings.steps if self.refinement else 0
        # Scores are the rescorer's where there is one.
        self.ranks = self.rescorer is None

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        memory = self.encode(source)
        if isinstance(self.model, SourceLatentModel):
            return self._samples_first(self.model, memory)
        return self._lengths_first(self.model, memory)

    def _lengths_first(self, model: Any, memory: Memory) -> tuple[Tensor, ...]:
        """Candidates in the order sentence, length, sample: each length has latents of its own."""
        settings = self.settings
        lengths = self._readable(model.length.likely(memory, settings.lengths, settings.lengthening))
        candidates = lengths.size(1) * settings.samples
        rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(candidates)
        choice = LengthChoice(lengths=lengths.repeat_interleave(settings.samples, 1).flatten())
        memory = memory.select(rows)
        mask = model.latent_mask(memory, choice)
        return model.read(memory, self._refined(model, memory, mask, candidates), mask, choice, self.ranks)

    def _samples_first(self, model: Any, memory: Memory) -> tuple[Tensor, ...]:
        """Candidates in the order sentence, sample, length: each sample has lengths of its own, predicted after its
        refinement."""
        settings = self.settings
        rows = torch.arange(len(memory.mask), device=memory.mask.device).repeat_interleave(settings.samples)
        memory = memory.select(rows)
        z = self._refined(model, memory, memory.mask, settings.samples)
        lengths = self._readable(model.length.likely(memory, settings.lengths, settings.lengthening, z))
        rows = torch.arange(len(z), device=z.device).repeat_interleave(lengths.size(1))
        memory = memory.select(rows)
        return model.read(memory, z[rows], memory.mask, LengthChoice(lengths=lengths.flatten()), self.ranks)

    def _refined(self, model: LatentModel, memory: Memory, mask: Tensor, samples: int) -> Tensor:
        """Latents (C, P, Z) of draws from the prior, `samples` rows for a sentence, after all steps."""
        mean, deviation = model.prior(memory, mask)
        z = mean + deviation * self._noise(memory.tokens, mask, samples).to(mean)
        for _ in range(self.steps or 0):
            assert self.refinement is not None
            z = self.refinement.moved(memory, z, mask)
        return z

    def _readable(self, lengths: Tensor) -> Tensor:
        """Lengths whose outputs a rescorer can read."""
        if self.rescorer is None:
            return lengths
        # The rescorer also reads an end symbol, and our output may have a word in place of its end symbol.
        return lengths.clamp(max=self.rescorer.config.max_positions - 1 - self.model.extra_positions)

    def _noise(self, source: Tensor, mask: Tensor, samples: int) -> Tensor:
        """Noise (C, P, Z) for rows of source (C, S), `samples` rows in a row for a sentence, at mask (C, P)."""
        source, counts = on_cpu(source, mask.sum(1))
        width, seed = self.model.config.latent_dim, self.settings.search_seed
        noise = torch.zeros(*mask.shape, width, dtype=torch.float64)
        for start in range(0, len(source), samples):
            ids = [token for token in source[start].tolist() if token != PAD]
            longest = int(counts[start : start + samples].max())
            noise[start : start + samples, :longest] = prior_noise(ids, samples, longest, width, seed)
        if self.settings.mean_first:
            noise[:: self.settings.samples] = 0
        return noise.to(mask.device, non_blocking=True)


def prior_noise(source: list[int], count: int, length: int, width: int, seed: int) -> Tensor:
    """Standard normal noise (count, length, width) of one sentence.

    It depends on the seed and the sentence's subwords alone, so that neither the batch nor the position in a file
    changes a translation. The noise of a shorter `length` is the beginning of that of a longer one.
    """
    digest = hashlib.sha256(np.asarray(source, dtype=np.int64).tobytes()).digest()
    key = int.from_bytes(digest[:8], "little")
    drawn = [
        np.random.Generator(np.random.Philox(key=[key, (seed << 20) + sample])).standard_normal((length, width))
        for sample in range(count)
    ]
    return torch.from_numpy(np.stack(drawn))
