"""COMET of sentences, times 100, and of a text: their mean. `program.py` computes it in COMET's own environment."""

from __future__ import annotations

import numpy as np

from workflow_src.evaluation.metrics.comet import METRIC, Settings
from workflow_src.spec import Score, Segments, Texts


def segments(texts: Texts, _settings: Settings) -> Segments:
    return Segments(100 * np.array(texts.figures(METRIC.name)))


def score(texts: Texts, settings: Settings) -> Score:
    """The mean over sentences; the signature has the model, its digest and the version of COMET."""
    return Score(float(segments(texts, settings).values.mean()), signature=texts.computed[METRIC.name].signature)
