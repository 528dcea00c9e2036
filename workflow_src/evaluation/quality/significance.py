"""p-values and intervals of differences between rows, and intervals of figures: two-sided paired approximate
randomisation (Riezler & Maxwell 2005), the jackknife and the bootstrap, for any metric with figures of sentences.

A metric's sentences are counts (N, C) with a function `combine` from sums of them (..., C) to figures (...).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from workflow_src.records.checked import Lenient

# Format of significance.json.
FORMAT = 3
TRIALS = 10_000
SEED = 12345
# A difference with a smaller p-value is significant; intervals leave out the true difference with this probability.
LEVEL = 0.05
BOOTSTRAP_SAMPLES = 1000
BOOTSTRAP_SEED = 12345
# Trials computed together: bounds memory.
_CHUNK = 500
# Smaller differences are rounding.
_ROUNDING = 1e-9

Combine = Callable[[np.ndarray], np.ndarray]


class PairedTest(Lenient):
    """The test of p-values."""

    name: str
    trials: int
    seed: int | None = None


class Pair(Lenient):
    """A row and another one in a variant and a metric, and their difference."""

    system: str
    name: str
    seed: int
    other: tuple[str, str]
    variant: str
    metric: str
    difference: float


class TestedPair(Pair):
    why: Literal["baseline", "control"]
    p_value: float


class ComparedPair(Pair):
    """With the fields of a `PairedDifference`."""

    why: Literal["autoregressive"]
    error: float
    sentence: float


class Comparisons(Lenient):
    """`significance.json`."""

    test: PairedTest
    pairs: tuple[Annotated[TestedPair | ComparedPair, Field(discriminator="why")], ...]


# The test as results describe it.
TEST = PairedTest(name="two-sided paired approximate randomisation", trials=TRIALS, seed=SEED)


def randomisation_test(
    baseline: np.ndarray, others: np.ndarray, combine: Combine, trials: int = TRIALS
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
    generator = np.random.default_rng(SEED)
    larger = np.zeros(rows, dtype=int)
    for start in range(0, trials, _CHUNK):
        size = (min(_CHUNK, trials - start), sentences)
        exchanged = generator.integers(0, 2, size, dtype=np.int8).astype(float)
        moved = (exchanged @ columns).reshape(-1, rows, counts)
        differences = combine(other_sums - moved) - combine(baseline_sums + moved)
        larger += (np.abs(differences) >= np.abs(real) - _ROUNDING).sum(axis=0)
    return real, (larger + 1) / (trials + 1)


@dataclasses.dataclass(frozen=True)
class PairedDifference:
    """The difference of two rows in a figure, with what its interval needs; all in units of the figure.

    `error` is its standard error over sentences. `sentence` is how much the figure changes where one sentence is lost.
    """

    difference: float
    error: float
    sentence: float

    def interval(self, level: float) -> tuple[float, float]:
        """The two-sided interval that leaves the true difference out with probability `level` at most.

        With z the normal quantile and s = `sentence`, it is difference ± (z² s / 2 + √(z² error² + z⁴ s² / 4)). Without
        s it is the interval of a mean; without the error, the score interval of a Poisson count whose events cost s
        each. The terms with s keep the level where rows differ in few sentences: a test set may hold none of those that
        one of them gets wrong.
        """
        quantile = statistics.NormalDist().inv_cdf(1 - level / 2)
        rare = quantile**2 * self.sentence / 2
        half = rare + math.hypot(quantile * self.error, rare)
        return self.difference - half, self.difference + half

    def reversed(self) -> PairedDifference:
        """The difference of the second row from the first."""
        return dataclasses.replace(self, difference=-self.difference)


def sentence_values(counts: np.ndarray, combine: Combine) -> np.ndarray:
    """What each sentence of counts (N, C) says the figure is, (N,): jackknife pseudo-values, whose mean is close to it.

    A sentence is left out by putting the mean of all in its place, which is right for means and for ratios of sums.
    """
    sums = counts.sum(axis=0)
    figure = combine(sums)
    return figure + len(counts) * (figure - combine(sums - counts + sums / len(counts)))


def paired_difference(ours: np.ndarray, theirs: np.ndarray, combine: Combine) -> PairedDifference:
    """The difference in a figure of one row from another one; counts (N, C) of each."""
    sentences = len(ours)
    figures = [float(combine(counts.sum(axis=0))) for counts in (ours, theirs)]
    values = [sentence_values(counts, combine) for counts in (ours, theirs)]
    deviation = float(np.std(values[0] - values[1], ddof=1)) if sentences > 1 else 0.0
    sizes = [float(np.sqrt(np.mean(of_row**2))) / sentences for of_row in values]
    return PairedDifference(figures[0] - figures[1], deviation / math.sqrt(sentences), max(sizes))


def bootstrap_interval(counts: np.ndarray, combine: Combine, samples: int = BOOTSTRAP_SAMPLES) -> tuple[float, float]:
    """95 % interval of the figure of counts (N, C), as sacreBLEU's bootstrap has it.

    Its middle is the mean over resampled texts, its width that between their 2.5th and 97.5th percentile. It is widened
    to the figure itself where it leaves that out.
    """
    sentences = len(counts)
    drawn = np.random.default_rng(BOOTSTRAP_SEED).choice(sentences, size=(samples, sentences), replace=True)
    weights = np.stack([np.bincount(row, minlength=sentences) for row in drawn]).astype(float)
    figures = np.sort(combine(weights @ counts))
    edge = samples // 40
    half = 0.5 * (figures[samples - edge - 1] - figures[edge])
    figure = float(combine(counts.sum(axis=0)))
    return min(figure, float(figures.mean() - half)), max(figure, float(figures.mean() + half))
