"""Reading the best output off the slots of a non-autoregressive model by a prefix beam, and ranking what it found."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
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
# The slots of a sentence, and the log-probability of their best symbols, which scores are relative to.
Row = tuple[list[Slot], float]


def _below(min_ratio: float) -> float:
    return math.log(min_ratio) if min_ratio else -math.inf


def probable(logits: np.ndarray, blank: int, min_ratio: float) -> list[Slot]:
    """The symbols of slots that are at least `min_ratio` times as probable as the best, of logits (N, V)."""
    best = logits.max(-1, keepdims=True)
    places = np.flatnonzero(logits >= np.maximum(best + _below(min_ratio), LEAST))
    rows, symbols = np.divmod(places, logits.shape[1])
    return _slots(np.bincount(rows), symbols, logits.ravel()[places] - best[rows, 0], blank)


def certainty(logits: np.ndarray) -> float:
    """Sum over slots of the log-probability of the best symbol, which scores are relative to, of logits (N, V)."""
    return -float(np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)).sum())


def rows_of_arrays(logits: np.ndarray, slots: np.ndarray, blank: int, min_ratio: float, compared: bool) -> list[Row]:
    """Sentences from logits (B, N, V) and slots (B,); the second number is 0 unless `compared`."""
    own = [row[:count] for row, count in zip(logits, slots.tolist(), strict=True)]
    return [(probable(row, blank, min_ratio), certainty(row) if compared else 0.0) for row in own]


def rows_of_tensors(logits: Tensor, slots: Tensor, blank: int, min_ratio: float, compared: bool) -> list[Row]:
    """The same of tensors: few numbers leave their device, once for all sentences."""
    width = logits.size(1)
    best = logits.amax(-1, keepdim=True)
    mask = torch.arange(width, device=logits.device) < slots[:, None]
    found = (logits >= (best + _below(min_ratio)).clamp(min=LEAST)) & mask[..., None]
    row, place, symbols = found.nonzero(as_tuple=True)
    values = logits[row, place, symbols] - best[row, place, 0]
    sums = ((best[..., 0] - logits.logsumexp(-1)) * mask).sum(1) if compared else torch.zeros_like(slots)
    # Integers of this size are exact in float64, so that all may travel together.
    parts = [part.double() for part in (slots, sums, row * width + place, symbols, values)]
    sizes = np.cumsum([len(part) for part in parts])[:-1]
    counts, bases, owners, symbols, values = np.split(torch.cat(parts).cpu().numpy(), sizes)
    number = np.bincount(owners.astype(np.int64), minlength=len(counts) * width).reshape(-1, width)
    every = [number[row, :count] for row, count in enumerate(counts.astype(np.int64))]
    slots_of_all = _slots(np.concatenate(every), symbols.astype(np.int64), values, blank)
    following = iter(slots_of_all)
    return [
        (list(itertools.islice(following, len(own))), base) for own, base in zip(every, bases.tolist(), strict=True)
    ]


def _slots(counts: np.ndarray, symbols: np.ndarray, values: np.ndarray, blank: int) -> list[Slot]:
    """Slots of so many symbols each, from all symbols and their log-probabilities relative to the best of the slot."""
    every = zip(symbols.tolist(), values.tolist(), np.exp(values.astype(np.float64)).tolist(), strict=True)
    slots = []
    for count in counts.tolist():
        first = next(every)
        if count > 1:
            slots.append(_slot([first, *itertools.islice(every, count - 1)], blank))
        else:
            slots.append(Slot(NO_BLANK, [first]) if first[0] != blank else BLANK_ALONE)
    return slots


_VALUE = operator.itemgetter(1)


def _slot(symbols: list[tuple[int, float, float]], blank: int) -> Slot:
    symbols.sort(key=_VALUE, reverse=True)
    for place, (symbol, value, probability) in enumerate(symbols):
        if symbol == blank:
            del symbols[place]
            return Slot((value, probability), symbols)
    return Slot(NO_BLANK, symbols)


def _compared(settings: CtcBeamSettings, rescorer: Any, scored: bool) -> bool:
    """Whether what all outputs of a row share counts: the part of scores from the best symbols."""
    return scored and rescorer is None or settings.draws > 1


def searched(
    rows: Sequence[Row],
    source: Tensor,
    settings: CtcBeamSettings,
    extra: Extra,
    rescorer: Rescorer | Compiled | None = None,
    scored: bool = True,
) -> Hypotheses:
    """The translations of source (B, S) from as many rows, or of K draws from K times as many.

    An output's score is that of the draw in which it is the largest. Unless `scored`, a rescorer is not asked about
    sentences whose beam holds one output at the end.
    """
    each = max(1, settings.draws)
    found: list[dict[tuple[int, ...], float]] = [{} for _ in range(len(rows) // each)]
    for row, (slots, base) in enumerate(rows):
        outputs = found[row // each]
        for score, output in prefix_beam(slots, settings.beam, extra, settings.beam_threshold):
            outputs[output] = max(score + base, outputs.get(output, -math.inf))
    if rescorer is not None:
        found = rescored(rescorer, source, found, scored=scored)
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
    log p(y|x) / (|y| + 1). Unless `scored`, the former lack what all outputs of a sentence share, and a rescorer gives
    none to the only candidate of a sentence.
    """
    logits, slots = LogitsPass(model, settings)(source)
    extra = _extra(language_model, settings.lm_weight, settings.word_bonus)
    about = model.blank, settings.min_ratio, _compared(settings, rescorer, scored)
    # On a CPU, NumPy takes less time for the few numbers of a sentence.
    rows = (
        rows_of_tensors(logits, slots, *about)
        if logits.is_cuda
        else rows_of_arrays(logits.numpy(), slots.numpy(), *about)
    )
    return searched(rows, source, settings, extra, rescorer, scored)


def _others(networks: Mapping[str, Any]) -> tuple[LanguageModel | None, Rescorer | None]:
    language_model = networks.get(LM)
    return language_model.scorer if language_model is not None else None, networks.get(RESCORER)


def program(networks: Mapping[str, Any], settings: CtcBeamSettings, scored: bool) -> Pass:
    """The pass in a graph; the prefixes, the language model and the rescorer beside it.

    The graph hands out all logits: to find the most probable symbols, ONNX Runtime's TopK takes longer than NumPy.
    """
    model, (language_model, rescorer) = networks[MODEL], _others(networks)
    extra = Extra(language_model, settings.lm_weight, settings.word_bonus)
    about = model.blank, settings.min_ratio, _compared(settings, rescorer, scored)

    @torch.no_grad()
    def read(source: np.ndarray, outputs: list[np.ndarray]) -> Hypotheses:
        return searched(rows_of_arrays(*outputs, *about), torch.from_numpy(source), settings, extra, rescorer, scored)

    @torch.no_grad()
    def read_tensors(source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        return searched(rows_of_tensors(*outputs, *about), source, settings, extra, rescorer, scored)

    return Pass(LogitsPass(model, settings), outputs=("logits", "slots"), read=read, read_tensors=read_tensors)


def run(
    models: Mapping[str, Any], source: Tensor, settings: CtcBeamSettings, scored: bool = True, trace: bool = False
) -> Hypotheses:
    return ctc_beam(models[MODEL], source, settings, *_others(models), scored)
