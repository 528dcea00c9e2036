"""Beam search over the prefixes of a graph (Huang et al. 2022, section 3.4), and ranking of its outputs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.compiled import Words, usable
from workflow_src.decoding.graphs import best_words, graph_of
from workflow_src.decoding.ngram import NgramModel
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.decoding.search import SearchModule, Watch
from workflow_src.decoding.settings import LM
from workflow_src.decoding.slots import Row, rows_of_arrays, rows_of_tensors
from workflow_src.losses.path_scores import source_positions
from workflow_src.runtime.device import soon_on_cpu
from workflow_src.searches.graph_beam import GraphBeamSettings, compiled
from workflow_src.types import EOS, Hypotheses, LanguageModel, Networks

# Possible transitions are at least as probable, so that every output has a probability.
LEAST = 1e-300


class PrefixBeam:
    """The search for a sentence. Without `fast`, nothing is compiled."""

    def __init__(
        self, settings: GraphBeamSettings, classes: int, language_model: LanguageModel | None, fast: bool = True
    ):
        self.words = Words(language_model, settings.lm_weight, settings.word_bonus, fast)
        self._width = settings.beam
        self._penalty = float(settings.length_penalty)
        self._classes = classes
        self._gap = math.inf if settings.beam_threshold is None else float(settings.beam_threshold)
        self._find = self.words.runs(compiled.search)

    def __call__(self, row: Row, gains: np.ndarray, transitions: np.ndarray) -> dict[tuple[int, ...], float]:
        """Scores by output, from the probable words of vertices, log-probabilities (L,) of the best word of each, and
        log-probabilities of transitions (L, L)."""
        probabilities = np.exp(row.values + np.repeat(gains.astype(np.float64), row.counts))
        moves = np.maximum(np.exp(transitions.astype(np.float64)), LEAST)
        scores, symbols, ends = self._find(
            row.counts,
            row.symbols,
            probabilities,
            moves,
            self._width,
            self._gap,
            self.words.arguments,
            self.words.start,
            EOS,
            self._classes,
            self._penalty,
        )
        symbols, ends = symbols.tolist(), ends.tolist()
        outputs = [tuple(symbols[begin:end]) for begin, end in itertools.pairwise(ends)]
        return dict(zip(outputs, scores.tolist(), strict=True))


def try_out() -> None:
    """Compile the search, or read it from the cache, and run it."""
    beam = PrefixBeam(GraphBeamSettings.model_validate({}), 4, None)
    row = Row(*beam.words.probable(np.zeros((3, 4), np.float32), 0.5), 0.0)
    beam(row, np.zeros(3, np.float32), np.zeros((3, 3), np.float32))


@functools.lru_cache(maxsize=1)
def beam_of(settings: GraphBeamSettings, classes: int, language_model: LanguageModel | None) -> PrefixBeam:
    """The search for sentences, compiled where possible; cached, so that the next batch can use what it remembers."""
    # Compiling takes long, and other language models are computed uncompiled.
    compilable = language_model is None or isinstance(language_model, NgramModel)
    return PrefixBeam(settings, classes, language_model, fast=compilable and usable(compiled.search, try_out))


class GraphBeam(SearchModule):
    """`forward` returns logits of words (B, L, V), log-probabilities of the best ones (B, L), transitions (B, L, L) and
    numbers of vertices (B,); the search over prefixes reads these."""

    outputs = ("logits", "gains", "transitions", "vertices")

    def __init__(self, networks: Networks, settings: GraphBeamSettings, scored: bool = True):
        super().__init__(networks, settings, scored)
        # A sentence is one row of what is computed.
        self.rows = 1
        language_model = networks.get(LM)
        scorer = None if language_model is None else language_model.scorer
        self.beam = beam_of(settings, len(self.model.output_bias), scorer)

    def forward(
        self, source: Tensor, _lengths: Tensor | None = None, _watch: Watch | None = None
    ) -> tuple[Tensor, ...]:
        logits, transitions, mask = graph_of(self.model, self.encode(source))
        _, gains = best_words(logits, mask)
        return logits, gains, transitions, mask.sum(1)

    @torch.no_grad()
    def hypotheses(self, source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        logits, gains, transitions, vertices = outputs
        min_ratio = self.settings.min_ratio
        # The copy of the words, for which the CPU waits, comes after these.
        gains, transitions = soon_on_cpu(gains, transitions)
        if logits.is_cuda:
            rows = rows_of_tensors(logits, vertices, min_ratio, False)
        else:
            rows = rows_of_arrays(logits.numpy(), vertices.numpy(), min_ratio, False, self.beam.words.probable)
        candidates = [
            self.beam(row, gains_row[: len(row.counts)].numpy(), moves[: len(row.counts), : len(row.counts)].numpy())
            for row, gains_row, moves in zip(rows, gains, transitions, strict=True)
        ]
        if self.rescorer is not None:
            candidates = rescored(self.rescorer, source, candidates, scored=self.scored)
        return best_of(candidates)

    def origins(self, source: Tensor, outputs: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """The source position of the vertex that put out each subword of outputs of source (B, S), on the most probable
        path of the output."""
        return source_positions(self.model, source, outputs)
