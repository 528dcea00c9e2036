"""Prefix beam search over the slots of a non-autoregressive model, and ranking of its outputs."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.decoding.candidates import draw_latents, noise_table
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.ngram import NgramModel
from workflow_src.decoding.passes import Compiled, Pass
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.losses.ctc_origins import source_positions
from workflow_src.searches.ctc_beam import CtcBeamSettings, prefixes
from workflow_src.searches.ctc_beam.prefixes import PrefixBeam as Beam
from workflow_src.searches.ctc_beam.slots import Row, rows_of_arrays, rows_of_tensors
from workflow_src.spec import MODEL
from workflow_src.types import AlignedLatentModel, Hypotheses, LanguageModel, Networks, Rescorer, wide

log = logging.getLogger("continuum")


class LogitsPass(nn.Module):
    """Source (B, S) -> logits (B, N, V) and slots (B,); with draws of latents, K rows for each sentence."""

    def __init__(self, model: AlignedLatentModel, settings: CtcBeamSettings | None = None):
        super().__init__()
        self.model, self.temperature, self.noise = model, 0.0, None
        if settings is not None and settings.draws:
            sizes = model.config.max_positions, model.config.latent_dim
            self.temperature = settings.temperature
            self.noise = noise_table(settings.draws, *sizes, settings.search_seed).to(
                model.output_bias, non_blocking=True
            )

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        if self.noise is None:
            logits, mask = slot_logits(self.model, source)
            return logits, mask.sum(1)
        memory, z = draw_latents(self.model, self.model.encode(source), self.noise, self.temperature)
        hidden, mask = self.model.hidden(memory, z=z)
        return wide(self.model.logits(hidden)), mask.sum(1)


@functools.cache
def _compiled() -> ModuleType | None:
    """The module that needs Numba (the extra `fast`), where that is installed and works."""
    if importlib.util.find_spec("numba") is None:
        return None
    try:
        module = importlib.import_module("workflow_src.searches.ctc_beam.compiled")
        if not module.is_cached():
            log.info("compiling the search over prefixes; this takes some ten seconds, once")
        module.try_out()
    except Exception as failure:
        # An error of Numba, LLVM, or their cache; translations are the same without them.
        reason = " ".join(str(failure).split())[:200]
        log.warning(
            "warning: Numba cannot be used (%s: %s), and beams take longer; a folder in NUMBA_CACHE_DIR that can be "
            "written to may help",
            type(failure).__name__,
            reason,
        )
        return None
    return module


def beam_of(blank: int, settings: CtcBeamSettings, language_model: LanguageModel | None) -> Beam:
    """The beam search of rows: compiled where possible."""
    return _beam(blank, settings.beam, settings.beam_threshold, language_model, settings.lm_weight, settings.word_bonus)


@functools.lru_cache(maxsize=1)
def _beam(
    blank: int, width: int, threshold: float | None, language_model: LanguageModel | None, *weights: float
) -> Beam:
    """`beam_of`, cached: the next batch can use cached probabilities of the language model."""
    usable = language_model is None or isinstance(language_model, NgramModel)
    module = (_compiled() if usable else None) or prefixes
    return module.PrefixBeam(blank, width, threshold, language_model, *weights)


def _compared(settings: CtcBeamSettings, rescorer: Rescorer | Compiled | None, scored: bool) -> bool:
    """Whether scores need `Row.base`, which all outputs of a row share."""
    return (scored and rescorer is None) or settings.draws > 1


def hypotheses_of_rows(
    rows: Sequence[Row],
    source: Tensor,
    settings: CtcBeamSettings,
    beam: Beam,
    rescorer: Rescorer | Compiled | None = None,
    scored: bool = True,
) -> Hypotheses:
    """The translations of source (B, S) from B rows, or B * K rows for K draws.

    An output's score is the largest of its draws. Unless `scored`, a rescorer skips sentences whose beam has one output
    at the end.
    """
    draws = max(1, settings.draws)
    if rescorer is None and draws == 1:
        best = [beam.best(row) for row in rows]
        scores = [score + row.base for ((score, _), _), row in zip(best, rows, strict=True)]
        return Hypotheses(
            [list(output) for (_, output), _ in best],
            scores,
            candidates=[count for _, count in best],
            # Another search: reading all outputs takes longer than reading the best.
            ranked=lambda: [[(score + row.base, list(output)) for score, output in beam(row)] for row in rows],
        )
    candidates: list[dict[tuple[int, ...], float]] = [{} for _ in range(len(rows) // draws)]
    for number, row in enumerate(rows):
        outputs = candidates[number // draws]
        for score, output in beam(row):
            outputs[output] = max(score + row.base, outputs.get(output, -math.inf))
    if rescorer is not None:
        candidates = rescored(rescorer, source, candidates, scored=scored)
    return best_of(candidates)


@torch.no_grad()
def ctc_beam(
    model: AlignedLatentModel,
    source: Tensor,
    settings: CtcBeamSettings,
    language_model: LanguageModel | None = None,
    rescorer: Rescorer | None = None,
    scored: bool = True,
) -> Hypotheses:
    """Translate source (B, S).

    Scores are those of the winners: log p(y|x) + lm_weight log p_LM(y) + word_bonus |y|, or with a rescorer its
    log p(y|x) / (|y| + 1). Unless `scored`, the former are without `Row.base`, and a rescorer does not score the only
    candidate of a sentence.
    """
    logits, slots = LogitsPass(model, settings)(source)
    beam = beam_of(model.blank, settings, language_model)
    options = settings.min_ratio, _compared(settings, rescorer, scored)
    # On a CPU, NumPy takes less time for the few numbers of a sentence.
    rows = (
        rows_of_tensors(logits, slots, *options)
        if logits.is_cuda
        else rows_of_arrays(logits.numpy(), slots.numpy(), *options, beam.probable)
    )
    return hypotheses_of_rows(rows, source, settings, beam, rescorer, scored)


def _role_models(networks: Networks) -> tuple[LanguageModel | None, Rescorer | None]:
    language_model = networks.get(LM)
    return language_model.scorer if language_model is not None else None, networks.get(RESCORER)


def program(networks: Networks, settings: CtcBeamSettings, scored: bool) -> Pass:
    """The pass to logits; the search over prefixes, the language model and the rescorer read these.

    The graph outputs all logits: ONNX Runtime's TopK takes longer than selecting probable symbols here.
    """
    model: AlignedLatentModel = networks[MODEL]
    language_model, rescorer = _role_models(networks)
    beam = beam_of(model.blank, settings, language_model)
    options = settings.min_ratio, _compared(settings, rescorer, scored)

    @torch.no_grad()
    def read(source: np.ndarray, outputs: list[np.ndarray]) -> Hypotheses:
        logits, slots = outputs
        rows = rows_of_arrays(logits, slots, *options, beam.probable)
        return hypotheses_of_rows(rows, torch.from_numpy(source), settings, beam, rescorer, scored)

    @torch.no_grad()
    def read_tensors(source: Tensor, outputs: Sequence[Tensor]) -> Hypotheses:
        logits, slots = outputs
        return hypotheses_of_rows(rows_of_tensors(logits, slots, *options), source, settings, beam, rescorer, scored)

    return Pass(LogitsPass(model, settings), outputs=("logits", "slots"), read=read, read_tensors=read_tensors)


def run(
    models: Networks, source: Tensor, settings: CtcBeamSettings, scored: bool = True, _trace: bool = False
) -> Hypotheses:
    return ctc_beam(models[MODEL], source, settings, *_role_models(models), scored)


@torch.no_grad()
def origins(
    models: Networks,
    source: Tensor,
    settings: CtcBeamSettings,
    outputs: Sequence[Sequence[Sequence[int]]],
) -> list[list[list[int]]]:
    """The source position that each subword of outputs of source (B, S) was read off."""
    logits, slots = LogitsPass(models[MODEL], settings)(source)
    return source_positions(models[MODEL], source, logits, slots, outputs)
