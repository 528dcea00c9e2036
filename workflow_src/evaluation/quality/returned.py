"""Checks of the results of metrics. Raises DeclarationError that names the metric, before a figure reaches a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from workflow_src.declarations import METRIC_ENDINGS, METRIC_RESERVED
from workflow_src.errors import DeclarationError, short_repr
from workflow_src.evaluation.quality.significance import Combine
from workflow_src.spec import Metric, Score, Segments

# Rounding may carry a figure so far out of its bounds.
ROUNDING = 1e-6
# Reserved entries that a metric may return, unless another one before it has.
MORE = {"length_ratio"}


def checked_counts(metric: Metric, returned: Any, sentences: int) -> tuple[np.ndarray, Combine]:
    """Counts (N, C) of Segments that a metric returned for N sentences, and the function that combines their sums: the
    mean, where segments are figures."""
    if not isinstance(returned, Segments):
        raise _wrong(metric, f"{short_repr(returned)} as segments", "return Segments")
    try:
        values = np.asarray(returned.values, dtype=float)
    except (TypeError, ValueError):
        raise _wrong(metric, "segments that are no numbers", "return an array of numbers") from None
    dimensions = 1 if returned.combine is None else 2
    if values.ndim != dimensions or len(values) != sentences:
        shape = f"({sentences},)" if dimensions == 1 else f"({sentences}, C)"
        raise _wrong(metric, f"segments of shape {values.shape}", f"return {shape}, one a sentence")
    if not np.isfinite(values).all():
        number = int(np.argmin(np.isfinite(values).reshape(sentences, -1).all(axis=1)))
        raise _wrong(metric, f"{values[number]} for sentence {number + 1}", "return finite numbers")
    if returned.combine is not None:
        return values, returned.combine
    return values[:, None], lambda sums: sums[..., 0] / sentences


def checked_score(metric: Metric, returned: Any) -> Score:
    """The Score that a metric returned: finite, within its bounds, its interval from low to high."""
    if not isinstance(returned, Score):
        raise _wrong(metric, f"{short_repr(returned)} as score", "return a Score")
    figure = _within(metric, returned.figure)
    interval: Any = returned.interval
    if interval is not None:
        if not isinstance(interval, (tuple, list)) or len(interval) != 2:
            raise _wrong(metric, f"the interval {short_repr(interval)}", "return (low, high), or None")
        low, high = (_within(metric, end) for end in interval)
        if low > high:
            raise _wrong(metric, f"the interval {short_repr(interval)}", "return low before high")
        interval = low, high
    if not isinstance(returned.signature, str | None):
        raise _wrong(metric, f"the signature {short_repr(returned.signature)}", "return text, or None")
    if not isinstance(returned.more, Mapping):
        raise _wrong(metric, f"{short_repr(returned.more)} as more", "return a mapping")
    return dataclasses.replace(returned, figure=figure, interval=interval)


def checked_more(metric: Metric, more: Mapping[Any, Any], entries: Collection[str]) -> Mapping[str, Any]:
    """Further entries of a metric. None is one of `entries`, or may be one of another metric or of a row."""
    for key in more:
        reserved = key in entries or key in METRIC_RESERVED - MORE
        if not isinstance(key, str) or reserved or key.endswith(METRIC_ENDINGS):
            raise _wrong(metric, f"more with {short_repr(key)}, another entry of files", "rename it")
    return more


def _within(metric: Metric, figure: Any) -> float:
    """A finite figure within the bounds of its metric."""
    if isinstance(figure, bool) or not isinstance(figure, int | float | np.number) or not math.isfinite(figure):
        raise _wrong(metric, f"the figure {short_repr(figure)}", "return a finite number")
    clipped = metric.clipped(float(figure))
    if abs(clipped - figure) > ROUNDING:
        raise _wrong(metric, f"the figure {figure:g}, outside of its bounds {metric.bounds}", "correct one of them")
    return clipped


def _wrong(metric: Metric, returned: str, fix: str) -> DeclarationError:
    return DeclarationError(f'metric "{metric.name}"', f"returns {returned}", fix)
