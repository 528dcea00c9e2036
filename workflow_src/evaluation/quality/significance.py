"""Is one row better than another? Two-sided paired approximate randomisation of BLEU (Riezler & Maxwell 2005)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workflow_src.data.bleu import bleu_metric

TRIALS = 10_000
SEED = 12345
# Of the test: what is below tells two rows apart.
LEVEL = 0.05
# What results say about the test.
TEST: dict[str, Any] = {"name": "paired approximate randomisation", "two_sided": True, "trials": TRIALS, "seed": SEED}
# Trials computed together: bounds memory.
_CHUNK = 500
# Differences in BLEU that only rounding tells apart are equal.
_ROUNDING = 1e-9
_ORDERS = 4


def statistics(translations: list[str], references: list[str], tokeniser: str) -> np.ndarray:
    """What corpus BLEU is made of, by sentence (N, 10): tokens of output and reference, matches and n-grams by order.

    sacreBLEU counts them over cased text, by `tokeniser`. Raises ValueError for numbers of lines that differ
    or are 0.
    """
    if not references:
        raise ValueError("there are no references to compare translations against: give at least one line.")
    if len(translations) != len(references):
        raise ValueError(f"there are {len(translations)} translations for {len(references)} references.")
    # Effective order changes no counts, only the score of a sentence, which is not used.
    metric = bleu_metric(tokeniser, effective_order=True)
    found = (metric.sentence_score(text, [reference]) for text, reference in zip(translations, references, strict=True))
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found], dtype=float)


def corpus_bleu(sums: np.ndarray) -> np.ndarray:
    """BLEU in [0, 100] from summed `statistics` (..., 10), as sacreBLEU computes it (smoothing "exp")."""
    words, reference_words = sums[..., 0], sums[..., 1]
    matches, ngrams = sums[..., 2 : 2 + _ORDERS], sums[..., 2 + _ORDERS :]
    # The k-th order without a match counts as 1 / 2^k matches.
    counted = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_precision = np.log(counted / ngrams).mean(axis=-1)
        brevity = np.minimum(0.0, 1 - reference_words / words)
        bleu = 100 * np.exp(log_precision + brevity)
    # Without any match, or without any 4-gram, sacreBLEU says 0.
    return np.where((matches > 0).any(axis=-1) & (ngrams > 0).all(axis=-1), np.minimum(bleu, 100.0), 0.0)


def randomisation_test(
    baseline: np.ndarray, others: np.ndarray, trials: int = TRIALS, seed: int = SEED
) -> tuple[np.ndarray, np.ndarray]:
    """Differences in BLEU of `others` (K, N, 10) from `baseline` (N, 10), and their p-values, (K,) each.

    A baseline (K, N, 10) is one for each of the others.

    Under the null hypothesis the two outputs of a sentence might as well have been given by the other system. Each
    trial exchanges them with probability 1/2, sentence by sentence. With c the trials whose difference is at least as
    large in absolute value as the real one, p = (c + 1) / (trials + 1): in at most a share a of null comparisons is
    p <= a. All comparisons meet the same exchanges, so a p-value does not depend on what else is tested.
    """
    ours, theirs = baseline.sum(axis=-2), others.sum(axis=-2)
    found = corpus_bleu(theirs) - corpus_bleu(ours)
    between = others - baseline
    rows, sentences, counts = between.shape
    columns = between.transpose(1, 0, 2).reshape(sentences, rows * counts)
    generator = np.random.default_rng(seed)
    larger = np.zeros(rows, dtype=int)
    for start in range(0, trials, _CHUNK):
        size = (min(_CHUNK, trials - start), sentences)
        exchanged = generator.integers(0, 2, size, dtype=np.int8).astype(float)
        moved = (exchanged @ columns).reshape(-1, rows, counts)
        differences = corpus_bleu(theirs - moved) - corpus_bleu(ours + moved)
        larger += (np.abs(differences) >= np.abs(found) - _ROUNDING).sum(axis=0)
    return found, (larger + 1) / (trials + 1)


def share(sums: np.ndarray) -> np.ndarray:
    """A score that is a count of sentences: `sums` (..., 1) are those sentences."""
    return sums[..., 0]


def pairwise_test(
    counts: np.ndarray,
    rivals: Sequence[int],
    score: Callable[[np.ndarray], np.ndarray] = corpus_bleu,
    trials: int = TRIALS,
    seed: int = SEED,
) -> np.ndarray:
    """p-values (R, K) of the difference in `score` between each of K rows and each of R `rivals`, numbers of rows.

    `counts` (K, N, C) are what the score is made of, by sentence; `score` takes their sums (..., C). Test, exchanges
    and p-values are those of `randomisation_test`; what a trial exchanges is summed once for all pairs.
    """
    rows, sentences, size = counts.shape
    sums = counts.sum(axis=1)
    real = np.stack([score(sums) - score(sums[rival]) for rival in rivals])
    columns = counts.transpose(1, 0, 2).reshape(sentences, rows * size)
    generator = np.random.default_rng(seed)
    larger = np.zeros((len(rivals), rows), dtype=int)
    for start in range(0, trials, _CHUNK):
        shape = (min(_CHUNK, trials - start), sentences)
        exchanged = generator.integers(0, 2, shape, dtype=np.int8).astype(float)
        sums_exchanged = (exchanged @ columns).reshape(-1, rows, size)
        for number, rival in enumerate(rivals):
            moved = sums_exchanged - sums_exchanged[:, [rival]]
            differences = score(sums - moved) - score(sums[rival] + moved)
            larger[number] += (np.abs(differences) >= np.abs(real[number]) - _ROUNDING).sum(axis=0)
    return (larger + 1) / (trials + 1)
