"""TER of a text, and the edits of its sentences."""

from __future__ import annotations

import numpy as np
import sacrebleu

from workflow_src.evaluation.metrics.ter import Settings
from workflow_src.spec import Score, Segments, Texts


def score(texts: Texts, settings: Settings) -> Score:
    """TER, 0 or more."""
    metric = sacrebleu.TER(**settings.model_dump())
    figure = float(metric.corpus_score(texts.hypotheses, texts.all_references).score)
    return Score(figure, signature=metric.get_signature().format())


def segments(texts: Texts, settings: Settings) -> Segments:
    """Edits and words of the reference (N, 2)."""
    metric = sacrebleu.TER(**settings.model_dump())
    counts = metric._extract_corpus_statistics(texts.hypotheses, texts.all_references)
    return Segments(np.array(counts, dtype=float), combine)


def combine(sums: np.ndarray) -> np.ndarray:
    """TER from summed edits and words (..., 2); 100 for edits without any words."""
    edits, words = sums[..., 0], sums[..., 1]
    return 100 * np.where(words > 0, edits / np.maximum(words, 1), edits > 0)
