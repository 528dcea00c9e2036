"""p-values of differences between rows, and intervals of figures: two-sided paired approximate randomisation (Riezler &
Maxwell 2005) and the bootstrap, for any metric with figures of sentences.

A metric's sentences are counts (N, C) with a function `combine` from sums of them (..., C) to figures (...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workflow_src.spec import Segments

# Format of significance.json.
FORMAT = 1
TRIALS = 10_000
SEED = 12345
# A difference with a smaller p-value is significant.
LEVEL = 0.05
# The test as results describe it.
TEST: dict[str, Any] = {"name": "paired approximate randomisation", "two_sided": True, "trials": TRIALS, "seed": SEED}
BOOTSTRAP_SAMPLES = 1000
BOOTSTRAP_SEED = 12345
# Trials computed together: bounds memory.
_CHUNK = 500
# Smaller differences are rounding.
_ROUNDING = 1e-9

Combine = Callable[[np.ndarray], np.ndarray]


def counts_of(segments: Segments) -> tuple[np.ndarray, Combine]:
    """Counts of sentences (N, C) and the function that combines their sums: the mean, where segments are figures."""
    values = np.asarray(segments.values, dtype=float)
    if segments.combine is not None:
        return values, segments.combine
    sentences = len(values)
    return values[:, None], lambda sums: sums[..., 0] / sentences


def randomisation_test(
    baseline: np.ndarray, others: np.ndarray, combine: Combine, trials: int = TRIALS, seed: int = SEED
) -> tuple[np.ndarray, np.ndarray]:
    """Differences in a figure of `others` (K, N, C) from `baseline` (N, C), and their p-values, (K,) each.

    A baseline (K, N, C) is one for each of the others.

    Under the null hypothesis the two outputs of a sentence might as well have been given by the other system. Each
    trial exchanges them with probability 1/2, sentence by sentence. With c the trials whose difference is at least as
    large in absolute value as the real one, p = (c + 1) / (trials + 1): in at most a share a of null comparisons is p
    <= a. All comparisons use the same exchanges, so a p-value does not depend on what else is tested.
    """
    baseline_sums, other_sums = baseline.sum(axis=-2), others.sum(axis=-2)
    real = combine(other_sums) - combine(baseline_sums)
    differences_by_sentence = others - baseline
    rows, sentences, counts = differences_by_sentence.shape
    columns = differences_by_sentence.transpose(1, 0, 2).reshape(sentences, rows * counts)
    generator = np.random.default_rng(seed)
    larger = np.zeros(rows, dtype=int)
    for start in range(0, trials, _CHUNK):
        size = (min(_CHUNK, trials - start), sentences)
        exchanged = generator.integers(0, 2, size, dtype=np.int8).astype(float)
        moved = (exchanged @ columns).reshape(-1, rows, counts)
        differences = combine(other_sums - moved) - combine(baseline_sums + moved)
        larger += (np.abs(differences) >= np.abs(real) - _ROUNDING).sum(axis=0)
    return real, (larger + 1) / (trials + 1)


def pairwise_test(
    counts: np.ndarray, rivals: Sequence[int], combine: Combine, trials: int = TRIALS, seed: int = SEED
) -> np.ndarray:
    """p-values (R, K) of the difference in a figure between each of K rows and each of R `rivals`, numbers of rows.

    `counts` are (K, N, C). Test, exchanges and p-values are those of `randomisation_test`; sums of exchanges are
    computed once for all pairs.
    """
    rows, sentences, size = counts.shape
    sums = counts.sum(axis=1)
    real = np.stack([combine(sums) - combine(sums[rival]) for rival in rivals])
    columns = counts.transpose(1, 0, 2).reshape(sentences, rows * size)
    generator = np.random.default_rng(seed)
    larger = np.zeros((len(rivals), rows), dtype=int)
    for start in range(0, trials, _CHUNK):
        shape = (min(_CHUNK, trials - start), sentences)
        exchanged = generator.integers(0, 2, shape, dtype=np.int8).astype(float)
        sums_exchanged = (exchanged @ columns).reshape(-1, rows, size)
        for number, rival in enumerate(rivals):
            moved = sums_exchanged - sums_exchanged[:, [rival]]
            differences = combine(sums - moved) - combine(sums[rival] + moved)
            larger[number] += (np.abs(differences) >= np.abs(real[number]) - _ROUNDING).sum(axis=0)
    return (larger + 1) / (trials + 1)


def bootstrap_interval(
    counts: np.ndarray, combine: Combine, samples: int = BOOTSTRAP_SAMPLES, seed: int = BOOTSTRAP_SEED
) -> tuple[float, float]:
    """95 % interval of the figure of counts (N, C), as sacreBLEU's bootstrap has it.

    Its middle is the mean over resampled texts, its width that between their 2.5th and 97.5th percentile. It is widened
    to the figure itself where it leaves that out.
    """
    sentences = len(counts)
    drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    weights = np.stack([np.bincount(row, minlength=sentences) for row in drawn]).astype(float)
    figures = np.sort(combine(weights @ counts))
    edge = samples // 40
    half = 0.5 * (figures[samples - edge - 1] - figures[edge])
    figure = float(combine(counts.sum(axis=0)))
    return min(figure, float(figures.mean() - half)), max(figure, float(figures.mean() + half))
