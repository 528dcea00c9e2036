"""Prefix beam search over the slots of a non-autoregressive model, and ranking of its outputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.decoding.candidates import draw_latents, noise_table
from workflow_src.decoding.compiled import usable
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.ngram import NgramModel
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.decoding.settings import LM
from workflow_src.decoding.slots import rows_of_arrays, rows_of_tensors
from workflow_src.losses.ctc_origins import source_positions
from workflow_src.searches.ctc_beam import CtcBeamSettings, compiled
from workflow_src.searches.ctc_beam.compiled import PrefixBeam
from workflow_src.types import Hypotheses, LanguageModel, Networks


@functools.lru_cache(maxsize=1)
def beam_of(blank: int, settings: CtcBeamSettings, language_model: LanguageModel | None) -> PrefixBeam:
    """The beam search of rows, compiled where possible; cached, so that the next batch can use cached probabilities of
    the language model."""
    # Compiling takes long, and other language models are computed uncompiled.
    compilable = language_model is None or isinstance(language_model, NgramModel)
    return PrefixBeam(
        blank,
        settings.beam,
        settings.beam_threshold,
        language_model,
        settings.lm_weight,
        settings.word_bonus,
        fast=compilable and usable(compiled.search, compiled.try_out),
    )


class CtcBeam(SearchModule):
    """`forward` returns logits (B, N, V) and slots (B,), of K rows for each sentence with K draws of latents.

    The search over prefixes, the language model and the rescorer read these: ONNX Runtime's TopK takes longer than
    selecting probable symbols here. Scores are those of the winners: log p(y|x) + lm_weight log p_LM(y) +
    word_bonus |y|, or with a rescorer its log p(y|x) / (|y| + 1). Unless `scored`, the former are without `Row.base`,
    and a rescorer does not score the only candidate of a sentence.
    """

    outputs = ("logits", "slots")

    def __init__(self, networks: Networks, settings: CtcBeamSettings, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.rows = max(1, settings.draws)
        self.noise: Tensor | None = None
        if settings.draws:
            config = self.model.config
            table = noise_table(settings.draws, config.max_positions, config.latent_dim, settings.search_seed)
            self.noise = table.to(self.model.output_bias, non_blocking=True)
        language_model = networks.get(LM)
        self.beam = beam_of(self.model.blank, settings, None if language_model is None else language_model.scorer)

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        memory, z = self.encode(source), None
        if self.noise is not None:
            memory, z = draw_latents(self.model, memory, self.noise, self.settings.temperature)
        logits, mask = slot_logits(self.model, memory, z=z)
        return logits, mask.sum(1)

    @torch.no_grad()
    def hypotheses(self, source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        logits, slots = outputs
        # Whether scores need `Row.base`, which all outputs of a row share.
        based = (self.scored and self.rescorer is None) or self.settings.draws > 1
        options = self.settings.min_ratio, based
        # On a CPU, NumPy takes less time for the few numbers of a sentence.
        rows = (
            rows_of_tensors(logits, slots, *options)
            if logits.is_cuda
            else rows_of_arrays(logits.numpy(), slots.numpy(), *options, self.beam.words.probable)
        )
        beam = self.beam
        if self.rescorer is None and self.rows == 1:
            best = [beam.best(row) for row in rows]
            scores = [score + row.base for ((score, _), _), row in zip(best, rows, strict=True)]
            return Hypotheses(
                [list(output) for (_, output), _ in best],
                scores,
                candidates=[count for _, count in best],
                # Another search: reading all outputs takes longer than reading the best.
                ranked=lambda: [[(score + row.base, list(output)) for score, output in beam(row)] for row in rows],
            )
        candidates: list[dict[tuple[int, ...], float]] = [{} for _ in range(len(source))]
        for number, row in enumerate(rows):
            # An output's score is the largest of its draws.
            by_output = candidates[number // self.rows]
            for score, output in beam(row):
                by_output[output] = max(score + row.base, by_output.get(output, -math.inf))
        if self.rescorer is not None:
            candidates = rescored(self.rescorer, source, candidates, scored=self.scored)
        return best_of(candidates)

    @torch.no_grad()
    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position that each subword of outputs of source (B, S) was read off."""
        logits, slots = self(source)
        return source_positions(self.model, source, logits, slots, outputs)
