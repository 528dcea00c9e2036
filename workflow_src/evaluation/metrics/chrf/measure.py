"""chrF of a text, and the counts of its sentences; chrF++ with `word_order` 2."""

from __future__ import annotations

import numpy as np
import sacrebleu

from workflow_src.data.bleu import percent
from workflow_src.evaluation.metrics.chrf import Settings
from workflow_src.spec import Score, Segments, Texts


def sacrebleu_metric(settings: Settings) -> sacrebleu.CHRF:
    return sacrebleu.CHRF(**settings.model_dump())


def score(texts: Texts, settings: Settings) -> Score:
    """chrF in [0, 100]."""
    metric = sacrebleu_metric(settings)
    figure = percent(metric.corpus_score(texts.hypotheses, texts.all_references).score)
    return Score(figure, signature=metric.get_signature().format())


def segments(texts: Texts, settings: Settings) -> Segments:
    """Counts of sentences (N, 3 · orders): for each order n-grams of output and reference, and matches.

    Of several references a sentence counts against the one that gives it the best chrF.
    """
    counts = sacrebleu_metric(settings)._extract_corpus_statistics(texts.hypotheses, texts.all_references)
    return Segments(np.array(counts, dtype=float), lambda sums: f_score(sums, settings.beta))


def f_score(sums: np.ndarray, beta: int) -> np.ndarray:
    """chrF in [0, 100] from summed counts (..., 3 · orders).

    Precision and recall are means over the orders that output and reference both have.
    """
    outputs, references, matches = (sums[..., column::3] for column in range(3))
    in_both = (outputs > 0) & (references > 0)
    orders = np.maximum(in_both.sum(axis=-1), 1)
    precision, recall = (
        np.divide(matches, side, out=np.zeros_like(matches), where=in_both).sum(axis=-1) / orders
        for side in (outputs, references)
    )
    denominator = beta**2 * precision + recall
    f = np.divide(
        (1 + beta**2) * precision * recall, denominator, out=np.zeros_like(denominator), where=denominator > 0
    )
    return 100 * f
