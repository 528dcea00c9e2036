"""Beam search over a cached autoregressive decoder, batched.

A hypothesis is scored by its log-probability divided by (number of tokens, end symbol counted) ** length_penalty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.decoding.search import scores_not_finite
from workflow_src.decoding.settings import LM
from workflow_src.decoding.steps import Record, Records, State, StepSearch
from workflow_src.searches.beam import BeamSettings
from workflow_src.types import EOS, Hypotheses, IncrementalDecoder, LanguageModel, Networks, Ranked, wide

# A language model scores FUSED * beam continuations of each hypothesis.
FUSED = 4
NEVER = float("-inf")


@dataclasses.dataclass
class BeamState(State):
    """Also the log-probabilities (B, W) of hypotheses, and the number (B,) of finished ones."""

    scores: Tensor
    finished: Tensor
    fusion: Fusion | None

    def keep(self, sentences: Tensor) -> None:
        super().keep(sentences)
        if self.fusion:
            self.fusion.states = [self.fusion.states[sentence] for sentence in sentences.tolist()]


class Beam(StepSearch):
    """The best hypotheses of every position go on, `beam` of them for each sentence.

    Of the 2 * beam best continuations at every position, those among the first `beam` that end become hypotheses, and
    the first `beam` that do not end continue. A sentence is done when it has `beam` hypotheses; at the longest length
    every hypothesis ends.

    With a language model, lm_weight log p_LM of every subword and of the end is added (shallow fusion, Gulcehre et al.
    2015); continuations then are the best of the FUSED * beam most probable ones of each hypothesis. A `rescorer` ranks
    the hypotheses of a sentence at the end.
    """

    def __init__(self, networks: Networks, settings: BeamSettings, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.language_model: LanguageModel | None = networks[LM].scorer if networks.get(LM) is not None else None

    def begin(self, source: Tensor, start: Callable[[Any], IncrementalDecoder] | None = None) -> BeamState:
        state = super().begin(source, start)
        state.tokens = state.tokens[:, None].repeat(1, self.width if start else 1)
        dtype = torch.promote_types(self.model.output_bias.dtype, torch.float32)
        # Rows beside the first become hypotheses with the first position.
        scores = torch.full(state.tokens.shape, NEVER, dtype=dtype, device=source.device)
        scores[:, :1] = 0.0
        fusion = None
        if self.language_model is not None:
            fusion = Fusion(self.language_model, self.settings.lm_weight, source.size(0))
        return BeamState(**vars(state), scores=scores, finished=torch.zeros_like(state.limits), fusion=fusion)

    def step(self, state: BeamState) -> Record:
        """Records the best continuations, whether each ends, its score and its origin among the hypotheses before; and
        the origins and tokens of those that go on. All are (B, beam)."""
        beam, (B, W) = self.width, state.scores.shape
        full = state.full()
        scores, origins, tokens = self._candidates(state, full)
        ends = tokens == EOS
        best_scores, best_origins, ended = scores[:, :beam], origins[:, :beam], ends[:, :beam]
        complete = False
        if state.fixed or bool(ended.any()):
            state.finished = state.finished + (ended & (best_scores > NEVER)).sum(1)
            state.done = state.done | (state.finished >= beam)
            if full is not None:
                state.done = state.done | full
            complete = not state.fixed and bool(state.done.all())
            # Each hypothesis ends in one way only, so at least `beam` of the 2 * beam candidates do not end. With a
            # beam near the size of the vocabulary there are fewer candidates: none that ended may go on.
            order = ends.to(torch.int8).argsort(dim=1, stable=True)[:, :beam]
            scores = scores.masked_fill(ends, NEVER)
            scores, origins, tokens = scores.gather(1, order), origins.gather(1, order), tokens.gather(1, order)
        else:
            scores, origins, tokens = best_scores, best_origins, tokens[:, :beam]
        if state.fusion:
            state.fusion.extend(origins, tokens)
        if not complete:
            first_rows = torch.arange(B, device=scores.device)[:, None] * W
            state.decoder.reorder((first_rows + origins).view(-1))
        state.scores = scores
        state.tokens = tokens
        state.position = state.position + 1
        return state.done, ended, best_scores, best_origins, origins, tokens

    def _candidates(self, state: BeamState, full: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The 2 * beam best continuations of W hypotheses a sentence, best first: scores, origins in W, tokens.

        Sentences that are `full` (B,) can only end. Shapes of the results: (B, 2 * beam), fewer where there are fewer
        continuations.
        """
        B, W = state.scores.shape
        logits = state.decoder.step(state.tokens.reshape(-1))
        normaliser = wide(logits).logsumexp(-1, keepdim=True)
        # Padding and the start symbol (ids below EOS) are no words; their probability stays in the normaliser.
        logits.narrow(1, 0, EOS).fill_(NEVER)
        count = min((FUSED if state.fusion else 2) * self.width, logits.size(1))
        values, tokens = logits.topk(count, -1)
        if full is not None:
            rows = full.repeat_interleave(W)[:, None]
            end_alone = F.pad(logits[:, EOS : EOS + 1], (0, count - 1), value=NEVER)
            values, tokens = torch.where(rows, end_alone, values), tokens.masked_fill(rows, EOS)
        totals = (wide(values) - normaliser).view(B, W, count) + state.scores[..., None]
        if state.fusion:
            totals = totals + state.fusion.scores(tokens.view(B, W, count)).to(totals)
        best, index = totals.view(B, -1).topk(min(2 * self.width, W * count), -1)
        return best, index // count, tokens.view(B, -1).gather(1, index)

    def read(self, records: Records, count: int) -> Hypotheses:
        finished: list[Ranked] = [[] for _ in range(count)]
        complete = [False] * count
        # Origins and tokens of the hypotheses of each sentence, position by position.
        trails: list[list[tuple[list[int], list[int]]]] = [[] for _ in range(count)]
        for position, (sentences, record) in enumerate(records):
            divisor = (position + 1) ** self.settings.length_penalty
            done, ended, scores, end_origins, origins, tokens = (column.tolist() for column in record)
            for row, sentence in enumerate(sentences):
                if complete[sentence]:
                    continue
                for ends, score, origin in zip(ended[row], scores[row], end_origins[row], strict=True):
                    if ends and score > NEVER:
                        finished[sentence].append((score / divisor, _words(trails[sentence], origin)))
                trails[sentence].append((origins[row], tokens[row]))
                complete[sentence] = done[row]
        # Sorting is stable: of equal scores, the first comes first.
        ranked = [sorted(hypotheses, key=lambda pair: pair[0], reverse=True)[: self.width] for hypotheses in finished]
        if not all(ranked):
            # No score of a sentence is above the least one.
            raise scores_not_finite("beam")
        best = [hypotheses[0] for hypotheses in ranked]
        return Hypotheses([words for _, words in best], [score for score, _ in best], ranked=lambda: ranked)

    def finish(self, source: Tensor, hypotheses: Hypotheses) -> Hypotheses:
        if self.rescorer is None:
            return hypotheses
        assert hypotheses.ranked is not None
        candidates = [{tuple(words): score for score, words in ranked} for ranked in hypotheses.ranked()]
        return best_of(rescored(self.rescorer, source, candidates, self.settings.rescorer_weight))


def _words(trail: list[tuple[list[int], list[int]]], hypothesis: int) -> list[int]:
    """The tokens of a hypothesis after all positions of a trail."""
    words = []
    for origins, tokens in reversed(trail):
        words.append(tokens[hypothesis])
        hypothesis = origins[hypothesis]
    words.reverse()
    return words


class Fusion:
    """Shallow fusion with a language model, with its state of every hypothesis, `states[sentence][hypothesis]`."""

    def __init__(self, model: LanguageModel, weight: float, sentences: int):
        self.model, self.weight = model, weight
        self.states: list[list[Any]] = [[model.start] for _ in range(sentences)]

    def scores(self, tokens: Tensor) -> Tensor:
        """weight log p_LM of tokens (B, W, C) after each hypothesis."""
        step = self.model.step
        log_probabilities = [
            [[step(state, word)[0] for word in words] for state, words in zip(states, rows, strict=True)]
            for states, rows in zip(self.states, tokens.tolist(), strict=True)
        ]
        return self.weight * torch.tensor(log_probabilities, device=tokens.device)

    def extend(self, origins: Tensor, tokens: Tensor) -> None:
        """Extend the hypotheses `origins` (B, W) by `tokens` (B, W)."""
        self.states = [
            [self.model.step(states[origin], word)[1] for origin, word in zip(row, words, strict=True)]
            for states, row, words in zip(self.states, origins.tolist(), tokens.tolist(), strict=True)
        ]
