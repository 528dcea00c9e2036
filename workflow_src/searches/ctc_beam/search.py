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

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import drawn, noise_table
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.latent import length_mask
from workflow_src.decoding.passes import Pass
from workflow_src.decoding.ranking import Rescorer, best_of, rescored
from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.searches.ctc_beam import CtcBeamSettings
from workflow_src.spec import MODEL
from workflow_src.types import EOS, Hypotheses, LanguageModel, wide

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


class LogitsPass(nn.Module):
    """Source (B, S) -> logits (B, N, V) and slots (B,); with draws of latents, K rows for each sentence."""

    def __init__(self, model, settings: CtcBeamSettings | None = None):
        super().__init__()
        self.model, self.temperature, self.noise = model, 0.0, None
        if settings is not None and settings.draws:
            sizes = model.config.max_positions, model.config.latent_dim
            self.temperature = settings.temperature
            self.noise = noise_table(settings.draws, *sizes, settings.search_seed).to(model.output_bias)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        if self.noise is None:
            logits, mask = slot_logits(self.model, source)
            return logits, mask.sum(1)
        memory, z = drawn(self.model, self.model.encode(source), self.noise, self.temperature)
        hidden, mask = self.model.hidden(memory, z=z)
        return wide(self.model.logits(hidden)), mask.sum(1)


def probable(logits: Tensor, slots: Tensor, min_ratio: float) -> list[list[Slot]]:
    """The symbols of every slot that are probable enough, of logits (B, N, V) and slots (B,): lists by sentence.

    Probabilities are relative to the best symbol's.
    """
    counts = slots.tolist()
    flat = logits[0, : counts[0]] if len(counts) == 1 else logits[length_mask(slots)]
    best = flat.amax(-1, keepdim=True)
    # -inf is no output.
    least = best + math.log(min_ratio) if min_ratio else torch.full_like(best, -1e30)
    places = (flat >= least).nonzero()
    rows, symbols = places.T.tolist()
    values = (flat[places[:, 0], places[:, 1]] - best[places[:, 0], 0]).double().exp().tolist()
    found: list[list[tuple[int, float]]] = [[] for _ in range(len(flat))]
    for row, symbol, value in zip(rows, symbols, values, strict=True):
        found[row].append((symbol, value))
    ends = list(itertools.accumulate(counts, initial=0))
    return [found[start:end] for start, end in itertools.pairwise(ends)]


def certainty(logits: Tensor, slots: Tensor) -> list[float]:
    """Sum over a sentence's slots of the log-probability of the best symbol, which scores are relative to."""
    own = logits.amax(-1) - logits.logsumexp(-1)
    return (own * length_mask(slots)[:, : own.size(1)]).sum(1).tolist()


def searched(
    logits: Tensor,
    slots: Tensor,
    source: Tensor,
    blank: int,
    settings: CtcBeamSettings,
    language_model: LanguageModel | None = None,
    rescorer: Rescorer | None = None,
    scored: bool = True,
) -> Hypotheses:
    """The translations of source (B, S) from logits (B, N, V) and slots (B,), or of K draws from K times as many rows.

    An output's score is that of the draw in which it is the largest.
    """
    each = max(1, settings.draws)
    found: list[dict[tuple[int, ...], float]] = [{} for _ in source]
    # Every output of a row has the same part of its score from the best symbols.
    compared = scored and rescorer is None or each > 1
    shared = certainty(logits, slots) if compared else [0.0] * len(slots)
    for row, (symbols, base) in enumerate(zip(probable(logits, slots, settings.min_ratio), shared, strict=True)):
        prefixes = Prefixes(language_model, settings.lm_weight, settings.word_bonus)
        outputs = found[row // each]
        for score, node in prefix_beam(symbols, blank, settings.beam, prefixes):
            tokens = prefixes.tokens(node)
            outputs[tokens] = max(score + base, outputs.get(tokens, -math.inf))
    if rescorer is not None:
        found = rescored(rescorer, source, found)
    return best_of(found)


@torch.no_grad()
def ctc_beam(
    model,
    source: Tensor,
    settings: CtcBeamSettings,
    language_model: LanguageModel | None = None,
    rescorer: Rescorer | None = None,
    scored: bool = True,
) -> Hypotheses:
    """Translate source (B, S).

    Scores are those of the winners: log p(y|x) + lm_weight log p_LM(y) + word_bonus |y|, or with a rescorer its
    log p(y|x) / (|y| + 1). Unless `scored`, the former lack what all outputs of a sentence share.
    """
    logits, slots = LogitsPass(model, settings)(source)
    return searched(logits, slots, source, model.blank, settings, language_model, rescorer, scored)


def _others(networks: Mapping[str, Any]) -> tuple[LanguageModel | None, Rescorer | None]:
    language_model = networks.get(LM)
    return language_model.scorer if language_model is not None else None, networks.get(RESCORER)


def program(networks: Mapping[str, Any], settings: CtcBeamSettings, scored: bool) -> Pass:
    """The pass in a graph; the prefixes, the language model and the rescorer beside it."""
    model, others = networks[MODEL], _others(networks)

    @torch.no_grad()
    def read(source: np.ndarray, outputs: list[np.ndarray]) -> Hypotheses:
        logits, slots = map(torch.from_numpy, outputs)
        return searched(logits, slots, torch.from_numpy(source), model.blank, settings, *others, scored)

    return Pass(LogitsPass(model, settings), outputs=("logits", "slots"), read=read)


def run(
    models: Mapping[str, Any], source: Tensor, settings: CtcBeamSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return ctc_beam(models[MODEL], source, settings, *_others(models), scored)
