"""sacreBLEU's BLEU by the tokeniser of the target language: the one place that counts it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sacrebleu

from workflow_src.config.tokenisers import unavailable
from workflow_src.errors import ConfigError


@functools.cache
def bleu_metric(tokeniser: str, **settings: Any) -> sacrebleu.BLEU:
    """BLEU by a tokeniser that `config.tokenisers.bleu_tokeniser` names; `settings` are further ones of sacreBLEU's.

    There is one for each setting in a process: its tokeniser caches lines, and references recur with every system.
    Raises ConfigError where this machine lacks the tokeniser's packages or model: nothing is downloaded.
    """
    if reason := unavailable(tokeniser):
        raise ConfigError("tokeniser", tokeniser, problem=f"it {reason}")
    return sacrebleu.BLEU(tokenize=tokeniser, **settings)


def corpus_bleu(
    hypotheses: list[str],
    references: Sequence[str],
    tokeniser: str,
    more: Sequence[Sequence[str]] = (),
    **settings: Any,
) -> float:
    """BLEU in [0, 100] of detokenised text against one reference each, or against `more` references too."""
    score = bleu_metric(tokeniser, **settings).corpus_score(hypotheses, [references, *more])
    return percent(score.score)


def percent(value: float) -> float:
    """`value` cut to [0, 100], which rounding may have left by a little."""
    return min(100.0, max(0.0, float(value)))
