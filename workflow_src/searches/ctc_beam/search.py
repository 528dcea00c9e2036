"""Prefix beam search (Graves & Jaitly 2014; Hannun et al. 2014) over the slots of a non-autoregressive model.

An output's probability is the sum over its alignments. The search goes through the slots and keeps the best prefixes,
each with the probability of its alignments that end in a blank and of those that end in its last symbol. Most slots are
certain: with one symbol left after pruning, a slot costs one addition a prefix.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.searches.ctc_beam import LM, RESCORER, CtcBeamSettings
from workflow_src.spec import MODEL
from workflow_src.types import EOS, Hypotheses, LanguageModel

# A slot's symbols with their probabilities relative to the best one's.
Slot = Sequence[tuple[int, float]]


class Prefixes:
    """All prefixes that were ever in a beam, as a tree: equal ones are one node. Node 0 is the empty prefix."""

    def __init__(self, language_model: LanguageModel | None, lm_weight: float, word_bonus: float):
        self.language_model, self.lm_weight, self.word_bonus = language_model, lm_weight, word_bonus
        self.parent, self.last = [-1], [-1]
        # lm_weight log p_LM + word_bonus |y| of each prefix.
        self.extra = [0.0]
        self.states: list[Any] = [language_model.start if language_model else None]
        self.children: dict[tuple[int, int], int] = {}

    def extended(self, node: int, symbol: int) -> int:
        """The prefix with one more symbol."""
        key = (node, symbol)
        child = self.children.get(key)
        if child is None:
            child = self.children[key] = len(self.last)
            extra, state = self.extra[node] + self.word_bonus, None
            if self.language_model:
                value, state = self.language_model.step(self.states[node], symbol)
                extra += self.lm_weight * value
            self.parent.append(node)
            self.last.append(symbol)
            self.extra.append(extra)
            self.states.append(state)
        return child

    def finished(self, node: int) -> float:
        """What is added to log p(y|x) when the output ends here."""
        if not self.language_model:
            return self.extra[node]
        return self.extra[node] + self.lm_weight * self.language_model.step(self.states[node], EOS)[0]

    def tokens(self, node: int) -> tuple[int, ...]:
        found = []
        while node:
            found.append(self.last[node])
            node = self.parent[node]
        return tuple(reversed(found))


def prefix_beam(slots: Sequence[Slot], blank: int, width: int, prefixes: Prefixes) -> list[tuple[float, int]]:
    """(score, node) of the best prefixes, best first, at most `width`.

    Scores are log p(y|x), relative to the best symbol of every slot, plus what the prefixes add.
    """
    # By prefix: probability of the alignments that end in a blank, and of those that end in the last symbol.
    beam: dict[int, tuple[float, float]] = {0: (1.0, 0.0)}
    last, extended, extra = prefixes.last, prefixes.extended, prefixes.extra
    scale = 0.0
    for slot in slots:
        grown: dict[int, tuple[float, float]] = {}
        if len(slot) == 1 and slot[0][0] == blank:
            beam = {node: (ended + open_, 0.0) for node, (ended, open_) in beam.items()}
            continue
        for node, (ended, open_) in beam.items():
            both, end = ended + open_, last[node]
            for symbol, p in slot:
                if symbol == blank:
                    a, b = grown.get(node, (0.0, 0.0))
                    grown[node] = (a + both * p, b)
                    continue
                reached = both
                if symbol == end:
                    # Again the last symbol: the same prefix, or, after a blank, one more of it.
                    a, b = grown.get(node, (0.0, 0.0))
                    grown[node] = (a, b + open_ * p)
                    reached = ended
                if reached:
                    child = extended(node, symbol)
                    a, b = grown.get(child, (0.0, 0.0))
                    grown[child] = (a, b + reached * p)
        if len(grown) > width:
            best = heapq.nlargest(width, ((math.log(a + b) + extra[n], n) for n, (a, b) in grown.items() if a + b))
            grown = {node: grown[node] for _, node in best}
        most = max(a + b for a, b in grown.values())
        if most < 1e-100:
            grown = {node: (a / most, b / most) for node, (a, b) in grown.items()}
            scale += math.log(most)
        beam = grown
    ranked = [(math.log(a + b) + scale + prefixes.finished(n), n) for n, (a, b) in beam.items() if a + b]
    return sorted(ranked, reverse=True)


def probable(logits: Tensor, mask: Tensor, min_probability: float) -> tuple[list[list[Slot]], list[float]]:
    """The symbols of every slot of a batch that are probable enough, and the best one always.

    logits (B, N, V), mask (B, N). Probabilities are relative to the best symbol's; the second value is the sum over a
    sentence's slots of the logarithm of the best symbol's probability.
    """
    best, symbol = logits.max(-1)
    normaliser = logits.logsumexp(-1)
    relative = logits - best[..., None]
    # p >= min_probability, written with logits relative to the best one's.
    least = (math.log(min_probability) if min_probability else -math.inf) + (normaliser - best)
    kept = relative >= least.clamp(max=0)[..., None] if min_probability else relative > -math.inf
    sentences, slots, symbols = (found.tolist() for found in np.nonzero((kept & mask[..., None]).cpu().numpy()))
    values = relative[kept & mask[..., None]].double().exp().tolist()
    result: list[list[list[tuple[int, float]]]] = [[[] for _ in range(count)] for count in mask.sum(1).tolist()]
    for row, slot, one, value in zip(sentences, slots, symbols, values, strict=True):
        result[row][slot].append((one, value))
    return result, ((best - normaliser) * mask).sum(1).tolist()


@torch.no_grad()
def ctc_beam(
    model,
    source: Tensor,
    settings: CtcBeamSettings,
    language_model: LanguageModel | None = None,
    rescorer: Any = None,
) -> Hypotheses:
    """Translate source (B, S).

    Scores are those of the winners: log p(y|x) + lm_weight log p_LM(y) + word_bonus |y|, or with a rescorer its
    log p(y|x) / (|y| + 1).
    """
    logits, mask = slot_logits(model, source)
    rows, certain = probable(logits, mask, settings.min_probability)
    found = []
    for slots, base in zip(rows, certain, strict=True):
        prefixes = Prefixes(language_model, settings.lm_weight, settings.word_bonus)
        ranked = prefix_beam(slots, model.blank, settings.beam, prefixes)
        found.append({prefixes.tokens(node): score + base for score, node in ranked})
    if rescorer is not None:
        found = rescored(rescorer, source, found)
    return best_of(found)


def run(
    models: Mapping[str, Any], source: Tensor, settings: CtcBeamSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    language_model = models.get(LM)
    return ctc_beam(
        models[MODEL], source, settings, language_model and language_model.scorer, models.get(RESCORER)
    )
