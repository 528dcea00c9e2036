"""Placeholders that source and reference share, and those of them that the translation has, a sentence each."""

from __future__ import annotations

from collections import Counter

import numpy as np

from workflow_src.data.placeholders import Placeholders
from workflow_src.spec import Frozen, Segments, Texts


def segments(texts: Texts, _settings: Frozen) -> Segments:
    """Kept and shared placeholders (N, 2); one that occurs twice counts twice."""
    spans = Placeholders().spans
    counts = []
    for source, reference, hypothesis in zip(texts.sources, texts.references, texts.hypotheses, strict=True):
        shared = Counter(spans(source)) & Counter(spans(reference))
        kept_spans = shared & Counter(spans(hypothesis))
        counts.append((kept_spans.total(), shared.total()))
    return Segments(np.array(counts, dtype=float).reshape(-1, 2), share)


def share(sums: np.ndarray) -> np.ndarray:
    """Share of placeholders kept from sums (..., 2); 1 for texts without any."""
    kept_spans, shared = sums[..., 0], sums[..., 1]
    return np.where(shared > 0, kept_spans / np.maximum(shared, 1), 1.0)
