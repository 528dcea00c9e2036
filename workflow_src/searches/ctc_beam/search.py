"""Reading the best output off the slots of a non-autoregressive model by a prefix beam, and ranking what it found."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import drawn, noise_table
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.passes import Compiled, Pass
from workflow_src.decoding.ranking import Rescorer, best_of, rescored
from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.searches.ctc_beam import CtcBeamSettings
from workflow_src.searches.ctc_beam.prefixes import BLANK_ALONE, NO_BLANK, Extra, Slot, prefix_beam
from workflow_src.spec import MODEL
from workflow_src.types import Hypotheses, LanguageModel, wide


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


# What is below may not be put out.
LEAST = -1e30


def probable(logits: np.ndarray | Tensor, blank: int, min_ratio: float) -> list[Slot]:
    """The symbols of slots that are at least `min_ratio` times as probable as the best, of logits (N, V)."""
    below = math.log(min_ratio) if min_ratio else -math.inf
    rows, symbols, values = (_of_tensor if isinstance(logits, Tensor) else _of_array)(logits, below)
    every = zip(symbols.tolist(), values.tolist(), np.exp(values.astype(np.float64)).tolist(), strict=True)
    slots = []
    for count in np.bincount(rows).tolist():
        first = next(every)
        if count > 1:
            slots.append(_slot([first, *itertools.islice(every, count - 1)], blank))
        else:
            slots.append(Slot(NO_BLANK, [first]) if first[0] != blank else BLANK_ALONE)
    return slots


def _of_array(logits: np.ndarray, below: float) -> tuple[np.ndarray, ...]:
    """Rows, symbols and log-probabilities relative to the best, of those at most `below` (negative) under it."""
    best = logits.max(-1, keepdims=True)
    places = np.flatnonzero(logits >= np.maximum(best + below, LEAST))
    rows, symbols = np.divmod(places, logits.shape[1])
    return rows, symbols, logits.ravel()[places] - best[rows, 0]


def _of_tensor(logits: Tensor, below: float) -> tuple[np.ndarray, ...]:
    """The same of a tensor: few numbers leave its device."""
    best = logits.amax(-1, keepdim=True)
    rows, symbols = (logits >= (best + below).clamp(min=LEAST)).nonzero(as_tuple=True)
    values = logits[rows, symbols] - best[rows, 0]
    return rows.cpu().numpy(), symbols.cpu().numpy(), values.cpu().numpy()


_VALUE = operator.itemgetter(1)


def _slot(symbols: list[tuple[int, float, float]], blank: int) -> Slot:
    symbols.sort(key=_VALUE, reverse=True)
    for place, (symbol, value, probability) in enumerate(symbols):
        if symbol == blank:
            del symbols[place]
            return Slot((value, probability), symbols)
    return Slot(NO_BLANK, symbols)


def certainty(logits: np.ndarray | Tensor) -> float:
    """Sum over slots of the log-probability of the best symbol, which scores are relative to, of logits (N, V)."""
    if isinstance(logits, Tensor):
        return float((logits.amax(-1) - logits.logsumexp(-1)).sum())
    return -float(np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)).sum())


def searched(
    logits: np.ndarray | Tensor,
    slots: np.ndarray | Tensor,
    source: Tensor,
    blank: int,
    settings: CtcBeamSettings,
    extra: Extra,
    rescorer: Rescorer | Compiled | None = None,
    scored: bool = True,
) -> Hypotheses:
    """The translations of source (B, S) from logits (B, N, V) and slots (B,), or of K draws from K times as many rows.

    An output's score is that of the draw in which it is the largest.
    """
    each = max(1, settings.draws)
    found: list[dict[tuple[int, ...], float]] = [{} for _ in range(len(slots) // each)]
    # Every output of a row has the same part of its score from the best symbols.
    compared = scored and rescorer is None or each > 1
    for row, count in enumerate(slots.tolist()):
        own, outputs = logits[row, :count], found[row // each]
        base = certainty(own) if compared else 0.0
        symbols = probable(own, blank, settings.min_ratio)
        for score, output in prefix_beam(symbols, settings.beam, extra, settings.beam_threshold):
            outputs[output] = max(score + base, outputs.get(output, -math.inf))
    if rescorer is not None:
        found = rescored(rescorer, source, found)
    return best_of(found)


@functools.lru_cache(maxsize=1)
def _extra(language_model: LanguageModel | None, lm_weight: float, word_bonus: float) -> Extra:
    """What words add, kept from batch to batch: what it remembers of one serves the next."""
    return Extra(language_model, lm_weight, word_bonus)


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
    extra = _extra(language_model, settings.lm_weight, settings.word_bonus)
    outputs = (logits, slots) if logits.is_cuda else (logits.numpy(), slots.numpy())
    return searched(*outputs, source, model.blank, settings, extra, rescorer, scored)


def _others(networks: Mapping[str, Any]) -> tuple[LanguageModel | None, Rescorer | None]:
    language_model = networks.get(LM)
    return language_model.scorer if language_model is not None else None, networks.get(RESCORER)


def program(networks: Mapping[str, Any], settings: CtcBeamSettings, scored: bool) -> Pass:
    """The pass in a graph; the prefixes, the language model and the rescorer beside it."""
    model, (language_model, rescorer) = networks[MODEL], _others(networks)
    extra = Extra(language_model, settings.lm_weight, settings.word_bonus)

    @torch.no_grad()
    def read(source: np.ndarray, outputs: list[np.ndarray]) -> Hypotheses:
        return searched(*outputs, torch.from_numpy(source), model.blank, settings, extra, rescorer, scored)

    return Pass(LogitsPass(model, settings), outputs=("logits", "slots"), read=read)


def run(
    models: Mapping[str, Any], source: Tensor, settings: CtcBeamSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return ctc_beam(models[MODEL], source, settings, *_others(models), scored)
