"""Beam search over a cached autoregressive decoder, batched; finished sentences leave the batch.

A hypothesis is scored by its log-probability divided by (number of tokens, end symbol counted) ** length_penalty.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workflow_src.decoding.lengths import limits
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.searches.beam import BeamSettings
from workflow_src.spec import MODEL
from workflow_src.types import BOS, EOS, AutoregressiveModel, Hypotheses, LanguageModel, Networks, Ranked, wide


def beam_search(model: AutoregressiveModel, source: Tensor, *arguments: Any, **options: Any) -> Hypotheses:
    """The finished hypotheses of a beam for each sentence of source (B, S); arguments are those of `n_best`."""
    finished = n_best(model, source, *arguments, **options)
    best = [hypotheses[0] for hypotheses in finished]
    return Hypotheses([tokens for _, tokens in best], [score for score, _ in best], ranked=lambda: finished)


@torch.no_grad()
def n_best(
    model: AutoregressiveModel,
    source: Tensor,
    beam: int = 4,
    length_penalty: float = 1.0,
    max_length_ratio: float = 2.0,
    language_model: LanguageModel | None = None,
    lm_weight: float = 0.0,
) -> list[Ranked]:
    """(score, tokens) of finished hypotheses, best first, at most `beam` for each sentence of source (B, S).

    Of the 2 * beam best continuations at every position, those among the first `beam` that end become hypotheses, and
    the first `beam` that do not end continue. A sentence is done when it has `beam` hypotheses; at the longest length
    every hypothesis ends.

    With a language model, lm_weight log p_LM of every subword and of the end is added (shallow fusion, Gulcehre et al.
    2015); continuations then are the best of the FUSED * beam most probable ones of each hypothesis.
    """
    fusion = _Fusion(language_model, lm_weight, source.size(0)) if language_model else None
    decoder = model.start(model.encode(source))
    device, count = source.device, source.size(0)
    longest = limits(source, max_length_ratio, model.config.max_positions).tolist()
    finished: list[Ranked] = [[] for _ in range(count)]
    running = list(range(count))
    tokens = torch.full((count,), BOS, device=device)
    scores = torch.zeros(count, 1, device=device)
    history = torch.empty(count, 1, 0, dtype=torch.int64, device=device)
    for position in range(max(longest) + 1):
        width = scores.size(1)
        full = [position >= longest[sentence] for sentence in running]
        scores, origins, tokens = _candidates(decoder.step(tokens), scores, beam, full, fusion)
        ends = tokens == EOS
        complete: set[int] = set()
        (ending,) = on_cpu(ends[:, :beam])
        if bool(ending.any()):
            _collect(finished, running, scores, origins, ending, history, (position + 1) ** length_penalty)
            complete = {i for i, sentence in enumerate(running) if full[i] or len(finished[sentence]) >= beam}
            if len(complete) == len(running):
                break
            # Each hypothesis ends in one way only, so at least `beam` of the 2 * beam candidates do not end. With a
            # beam near the size of the vocabulary there are fewer candidates: none that ended may go on.
            scores = scores.masked_fill(ends, float("-inf"))
            order = ends.to(torch.int8).argsort(dim=1, stable=True)[:, :beam]
            scores, origins, tokens = scores.gather(1, order), origins.gather(1, order), tokens.gather(1, order)
        else:
            scores, origins, tokens = scores[:, :beam], origins[:, :beam], tokens[:, :beam]
        if fusion:
            fusion.extend(origins, tokens)
        history = torch.cat([history.gather(1, origins[..., None].expand(-1, -1, position)), tokens[..., None]], 2)
        base = torch.arange(len(running), device=device)[:, None] * width
        decoder.reorder((base + origins).view(-1))
        if complete:
            remaining = on_device([i for i in range(len(running)) if i not in complete], device)
            decoder.keep(remaining)
            running = [sentence for i, sentence in enumerate(running) if i not in complete]
            if fusion:
                fusion.states = [states for i, states in enumerate(fusion.states) if i not in complete]
            scores, tokens, history = scores[remaining], tokens[remaining], history[remaining]
        tokens = tokens.reshape(-1)
    # Sorting is stable: of equal scores, the first comes first.
    return [sorted(hypotheses, key=lambda pair: pair[0], reverse=True)[:beam] for hypotheses in finished]


# A language model scores FUSED * beam continuations of each hypothesis.
FUSED = 4


class _Fusion:
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


def _candidates(
    logits: Tensor, scores: Tensor, beam: int, full: list[bool], fusion: _Fusion | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2 * beam best continuations of W hypotheses a sentence, best first: scores, origins in W, tokens.

    logits (B * W, V) are overwritten; scores (B, W) are log-probabilities so far. Sentences that are `full` can only
    end. Shapes of the results: (B, 2 * beam), fewer where there are fewer continuations.
    """
    B, W = scores.shape
    normaliser = wide(logits).logsumexp(-1, keepdim=True)
    # Padding and the start symbol (ids below EOS) are no words; their probability stays in the normaliser.
    logits[:, :EOS] = float("-inf")
    if any(full):
        rows = on_device(full, logits.device).repeat_interleave(W)
        logits[rows, EOS + 1 :] = float("-inf")
    per_hypothesis = min((FUSED if fusion else 2) * beam, logits.size(1))
    values, tokens = logits.topk(per_hypothesis, -1)
    totals = (wide(values) - normaliser).view(B, W, per_hypothesis) + scores[..., None]
    if fusion:
        totals = totals + fusion.scores(tokens.view(B, W, per_hypothesis)).to(totals)
    top, index = totals.view(B, -1).topk(min(2 * beam, W * per_hypothesis), -1)
    return top, index // per_hypothesis, tokens.view(B, -1).gather(1, index)


def _collect(
    finished: list[Ranked],
    running: list[int],
    scores: Tensor,
    origins: Tensor,
    ends: Tensor,
    history: Tensor,
    divisor: float,
) -> None:
    """Add the possible hypotheses that end at this position (`ends` (B, beam), on the CPU) to `finished`."""
    places = ends.nonzero()
    rows, slots = places.to(scores.device, non_blocking=True).unbind(1)
    ended = on_cpu(scores[rows, slots], history[rows, origins[rows, slots]])
    for row, score, tokens in zip(places[:, 0].tolist(), *(column.tolist() for column in ended), strict=True):
        if score > float("-inf"):
            finished[running[row]].append((score / divisor, tokens))


def run(
    models: Networks, source: Tensor, settings: BeamSettings, _scored: bool = True, _trace: bool = False
) -> Hypotheses:
    """Translate source (B, S); scores are those of the ranking."""
    arguments = (
        models[MODEL],
        source,
        settings.beam,
        settings.length_penalty,
        settings.max_length_ratio,
        models[LM].scorer if LM in models else None,
        settings.lm_weight,
    )
    if RESCORER not in models:
        return beam_search(*arguments)
    candidates = [{tuple(tokens): score for score, tokens in hypotheses} for hypotheses in n_best(*arguments)]
    with torch.no_grad():
        return best_of(rescored(models[RESCORER], source, candidates, settings.rescorer_weight))
