"""BLEU of a text with sacreBLEU's interval, and the counts of its sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from workflow_src.data.bleu import bleu_metric, percent
from workflow_src.evaluation.quality.significance import BOOTSTRAP_SAMPLES, BOOTSTRAP_SEED
from workflow_src.spec import NoSettings, Score, Segments, Texts

ORDERS = 4


def score(texts: Texts, _settings: NoSettings) -> Score:
    """BLEU in [0, 100], and output tokens over reference tokens as `length_ratio`.

    The interval is sacreBLEU's bootstrap, its mean minus and plus half the width between the 2.5th and the 97.5th
    percentile, cut to [0, 100] and widened to BLEU itself where it leaves that out.
    """
    metric = bleu_metric(texts.corpus.tokeniser)
    with fixed_seed():
        result = metric.corpus_score(texts.hypotheses, texts.all_references, n_bootstrap=BOOTSTRAP_SAMPLES)
    bleu = percent(result.score)
    low, high = percent(result._mean - result._ci), percent(result._mean + result._ci)
    ratio = result.sys_len / result.ref_len if result.ref_len else 0.0
    signature = metric.get_signature().format()
    return Score(bleu, (min(bleu, low), max(bleu, high)), signature, {"length_ratio": ratio})


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Within the block sacreBLEU bootstraps with BOOTSTRAP_SEED in place of SACREBLEU_SEED."""
    previous = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(BOOTSTRAP_SEED)
    try:
        yield
    finally:
        if previous is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = previous


def segments(texts: Texts, _settings: NoSettings) -> Segments:
    """Counts of sentences (N, 10): tokens of output and reference, matches and n-grams by order."""
    counts = bleu_metric(texts.corpus.tokeniser)._extract_corpus_statistics(texts.hypotheses, texts.all_references)
    return Segments(np.array(counts, dtype=float), combine)


def combine(sums: np.ndarray) -> np.ndarray:
    """BLEU in [0, 100] from summed counts (..., 10), as sacreBLEU computes it (smoothing "exp")."""
    words, reference_words = sums[..., 0], sums[..., 1]
    matches, ngrams = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # The k-th order without a match counts as 1 / 2^k matches.
    counted = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_precision = np.log(counted / ngrams).mean(axis=-1)
        brevity = np.minimum(0.0, 1 - reference_words / words)
        bleu = 100 * np.exp(log_precision + brevity)
    # Without any match, or without any 4-gram, sacreBLEU gives 0.
    return np.where((matches > 0).any(axis=-1) & (ngrams > 0).all(axis=-1), np.minimum(bleu, 100.0), 0.0)
