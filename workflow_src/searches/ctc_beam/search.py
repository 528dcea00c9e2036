"""Prefix beam search (Graves & Jaitly 2014; Hannun et al. 2014) over the slots of a non-autoregressive model.

An output's probability is the sum over its alignments. The search goes through the slots and keeps the best prefixes,
each with the probability of its alignments that end in a blank and of those that end in its last symbol. Most slots are
certain: with one symbol left after pruning, a slot costs one addition a prefix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

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
    """All prefixes that were ever in a beam, as a tree: equal ones are one node. Node 0 is the empty prefix.

    `extra` is lm_weight log p_LM + word_bonus |y| of each, `last` its last symbol.
    """

    def __init__(self, language_model: LanguageModel | None, lm_weight: float, word_bonus: float):
        self.language_model, self.lm_weight, self.word_bonus = language_model, lm_weight, word_bonus
        self.parent, self.last, self.extra = [-1], [-1], [0.0]
        self.states: list[Any] = [language_model.start if language_model else None]
        # The node of a prefix with one more symbol, by node and symbol.
        self.children: dict[tuple[int, int], int] = {}

    def add(self, node: int, symbol: int) -> int:
        """A new node for the prefix with one more symbol."""
        extra, state = self.extra[node] + self.word_bonus, None
        if self.language_model:
            value, state = self.language_model.step(self.states[node], symbol)
            extra += self.lm_weight * value
        child = self.children[node, symbol] = len(self.last)
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
    last, extra, children, add = prefixes.last, prefixes.extra, prefixes.children, prefixes.add
    # By prefix: probability of the alignments that end in a blank, and of those that end in the last symbol.
    beam: dict[int, list[float]] = {0: [1.0, 0.0]}
    scale, certain = 0.0, -1
    for slot in slots:
        if len(slot) == 1:
            # The same certain symbol again merges with the one before it: nothing changes.
            if slot[0][0] == certain:
                continue
            certain = slot[0][0]
            if certain == blank:
                beam = {node: [ended + open_, 0.0] for node, (ended, open_) in beam.items()}
                continue
        else:
            certain = -1
        grown: dict[int, list[float]] = {}
        for node, (ended, open_) in beam.items():
            both, end = ended + open_, last[node]
            for symbol, p in slot:
                reached, target, place = both, node, 0
                if symbol != blank:
                    if symbol == end:
                        # Again the last symbol: the same prefix, or, after a blank, one more of it.
                        cell = grown.get(node)
                        if cell is None:
                            grown[node] = [0.0, open_ * p]
                        else:
                            cell[1] += open_ * p
                        reached = ended
                        if not ended:
                            continue
                    target, place = children.get((node, symbol)) or add(node, symbol), 1
                cell = grown.get(target)
                if cell is None:
                    grown[target] = [0.0, reached * p] if place else [reached * p, 0.0]
                else:
                    cell[place] += reached * p
        if len(grown) > width:
            scored = [(log(a + b) + extra[node], node) for node, (a, b) in grown.items() if a + b]
            scored.sort(reverse=True)
            grown = {node: grown[node] for _, node in scored[:width]}
        most = max(a + b for a, b in grown.values())
        if most < 1e-100:
            grown = {node: [a / most, b / most] for node, (a, b) in grown.items()}
            scale += log(most)
        beam = grown
    ranked = [(log(a + b) + scale + prefixes.finished(n), n) for n, (a, b) in beam.items() if a + b]
    return sorted(ranked, reverse=True)


def probable(logits: Tensor, mask: Tensor, min_probability: float) -> tuple[list[list[Slot]], list[float]]:
    """The symbols of every slot of a batch that are probable enough, and the best one always.

    logits (B, N, V), mask (B, N). Probabilities are relative to the best symbol's; the second value is the sum over a
    sentence's slots of the logarithm of the best symbol's probability.
    """
    flat = logits[mask]
    best, normaliser = flat.amax(-1), flat.logsumexp(-1)
    # Not below the best one, so that it always stays; -inf is no output.
    least = torch.minimum(normaliser + math.log(min_probability), best) if min_probability else best.new_tensor(-1e30)
    places = (flat >= least.reshape(-1, 1)).nonzero()
    slots, symbols = places.T.tolist()
    values = (flat[places[:, 0], places[:, 1]] - best[places[:, 0]]).double().exp().tolist()
    rows: list[list[tuple[int, float]]] = [[] for _ in range(len(flat))]
    for slot, symbol, value in zip(slots, symbols, values, strict=True):
        rows[slot].append((symbol, value))
    counts = mask.sum(1).tolist()
    certain = [float(part.sum()) for part in (best - normaliser).split(counts)]
    ends = list(itertools.accumulate(counts, initial=0))
    return [rows[start:end] for start, end in itertools.pairwise(ends)], certain


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
    return ctc_beam(models[MODEL], source, settings, language_model and language_model.scorer, models.get(RESCORER))
