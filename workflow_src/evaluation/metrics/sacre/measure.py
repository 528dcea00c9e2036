"""Scores of texts by sacreBLEU, and the counts of their sentences."""

from __future__ import annotations

import numpy as np
import sacrebleu
from sacremoses import MosesTokenizer

from workflow_src.config.languages import two_letters
from workflow_src.data.bleu import bleu_metric, corpus_bleu, percent
from workflow_src.evaluation.metrics.sacre import ChrfSettings, TerSettings
from workflow_src.evaluation.quality.significance import BOOTSTRAP_SAMPLES, BOOTSTRAP_SEED
from workflow_src.spec import NoSettings, Score, Segments, Texts

ORDERS = 4


def bleu(texts: Texts, _settings: NoSettings) -> Score:
    """BLEU in [0, 100], and output tokens over reference tokens as `length_ratio`."""
    metric = bleu_metric(texts.corpus.tokeniser)
    result = metric.corpus_score(texts.hypotheses, texts.all_references)
    ratio = result.sys_len / result.ref_len if result.ref_len else 0.0
    signature = metric.get_signature()
    # Settings of the interval that `quality.metrics.score` adds, which is sacreBLEU's.
    signature.update("bs", BOOTSTRAP_SAMPLES)
    signature.update("seed", BOOTSTRAP_SEED)
    return Score(percent(result.score), signature=signature.format(), more={"length_ratio": ratio})


def bleu_segments(texts: Texts, _settings: NoSettings) -> Segments:
    """Counts of sentences (N, 10): tokens of output and reference, matches and n-grams by order."""
    counts = bleu_metric(texts.corpus.tokeniser)._extract_corpus_statistics(texts.hypotheses, texts.all_references)
    return Segments(np.array(counts, dtype=float), combined_bleu)


def combined_bleu(sums: np.ndarray) -> np.ndarray:
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


def tokenised_bleu(texts: Texts, _settings: NoSettings) -> Score:
    """Cased BLEU over the tokens of Moses, as many papers count it."""
    tokenise = MosesTokenizer(lang=two_letters(texts.corpus.target)).tokenize
    hypotheses, references, *further = (
        # A further reference may lack a sentence.
        [tokenise(line, return_str=True, escape=False) if line else line for line in lines]
        for lines in (texts.hypotheses, *texts.all_references)
    )
    # Text that ends in a detached full stop looks tokenised to sacreBLEU, rightly so here.
    return Score(corpus_bleu(hypotheses, references, "none", further, force=True))


def international_lowercase_bleu(texts: Texts, _settings: NoSettings) -> Score:
    """BLEU over sacreBLEU's international tokens without case, as some papers count it."""
    references, *further = texts.all_references
    return Score(corpus_bleu(list(texts.hypotheses), references, "intl", further, lowercase=True))


def chrf(texts: Texts, settings: ChrfSettings) -> Score:
    """chrF in [0, 100]; chrF++ with `word_order` 2."""
    metric = sacrebleu.CHRF(**settings.model_dump())
    figure = percent(metric.corpus_score(texts.hypotheses, texts.all_references).score)
    return Score(figure, signature=metric.get_signature().format())


def chrf_segments(texts: Texts, settings: ChrfSettings) -> Segments:
    """Counts of sentences (N, 3 · orders): for each order n-grams of output and reference, and matches.

    Of several references a sentence counts against the one that gives it the best chrF.
    """
    metric = sacrebleu.CHRF(**settings.model_dump())
    counts = metric._extract_corpus_statistics(texts.hypotheses, texts.all_references)
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


def ter(texts: Texts, settings: TerSettings) -> Score:
    """TER, 0 or more."""
    metric = sacrebleu.TER(**settings.model_dump())
    figure = float(metric.corpus_score(texts.hypotheses, texts.all_references).score)
    return Score(figure, signature=metric.get_signature().format())


def ter_segments(texts: Texts, settings: TerSettings) -> Segments:
    """Edits and words of the reference (N, 2)."""
    metric = sacrebleu.TER(**settings.model_dump())
    counts = metric._extract_corpus_statistics(texts.hypotheses, texts.all_references)
    return Segments(np.array(counts, dtype=float), combined_ter)


def combined_ter(sums: np.ndarray) -> np.ndarray:
    """TER from summed edits and words (..., 2); 100 for edits without any words."""
    edits, words = sums[..., 0], sums[..., 1]
    return 100 * np.where(words > 0, edits / np.maximum(words, 1), edits > 0)
