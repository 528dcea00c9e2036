"""How sure means over sentences are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean over sentences; 0 for one sentence, which tells nothing about others."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
