"""How good translations are by the metrics of an experiment, with and without repetitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from workflow_src.config.metrics import Measured
from workflow_src.data.bleu import bleu_metric
from workflow_src.errors import InputError
from workflow_src.evaluation.quality.returned import checked_counts, checked_more, checked_score
from workflow_src.evaluation.quality.significance import Combine, bootstrap_interval
from workflow_src.evaluation.quality.variants import VARIANTS, variants
from workflow_src.registry import conventions, import_object
from workflow_src.spec import Corpus, Score, Texts

# Normalisation that takes more than half a point of BLEU from perfect outputs is worth a warning.
LEAST_ROUND_TRIP = 99.5


def sentence_counts(measured: Measured, texts: Texts) -> tuple[np.ndarray, Combine]:
    """Counts of a metric by sentence (N, C), and the function from their sums to its figure."""
    assert measured.metric.segments, f"{measured.metric.name} has no figures of sentences"
    segments = import_object(measured.metric.segments)(texts, measured.settings)
    return checked_counts(measured.metric, segments, len(texts.hypotheses))


def score(measured: Measured, texts: Texts, interval: bool = False) -> Score | None:
    """The score of a metric, with its interval where `interval` asks for that.

    None for a corpus that it cannot score, and where its program computed nothing of these texts.

    Bounds of the metric cut the interval.
    """
    metric = measured.metric
    if metric.conflict(texts.corpus, measured.settings) or (metric.program and metric.name not in texts.computed):
        return None
    scored = None
    if metric.score:
        scored = checked_score(metric, import_object(metric.score)(texts, measured.settings))
    if scored and (scored.interval or not interval):
        return scored
    counts, combine = sentence_counts(measured, texts)
    scored = scored or checked_score(metric, Score(float(combine(counts.sum(axis=0)))))
    if not interval:
        return scored
    low, high = map(metric.clipped, bootstrap_interval(counts, combine))
    return checked_score(metric, dataclasses.replace(scored, interval=(low, high)))


def scores(metrics: Iterable[Measured], texts: Texts) -> dict[str, Any]:
    """Entries of a quality file: for each metric NAME its figure, `NAME_ci` and `NAME_signature`, where it has them.

    A metric that cannot score the corpus is null. Raises InputError for empty input or numbers of lines that differ.
    """
    if not texts.hypotheses:
        raise InputError("the text", "has no translations to score", "give at least one line")
    for references in (texts.references, *texts.more):
        if len(texts.hypotheses) != len(references):
            problem = f"cannot be scored against {len(references)} references"
            raise InputError(f"{len(texts.hypotheses)} translations", problem)
    listed = tuple(metrics)
    names = [measured.metric.name for measured in listed]
    entries: dict[str, Any] = {}
    for measured in listed:
        name, scored = measured.metric.name, score(measured, texts, measured.metric.uncertainty)
        entries[name] = scored and scored.figure
        if measured.metric.uncertainty:
            entries[f"{name}_ci"] = scored and scored.interval
        if scored and scored.signature:
            entries[f"{name}_signature"] = scored.signature
        entries |= checked_more(measured.metric, scored.more, {*names, *entries}) if scored else {}
    return entries


def all_variants(metrics: Sequence[Measured], texts: Texts, shortened: Sequence[str]) -> dict[str, Any]:
    """Scores of texts as they are and without repetitions, by the names of VARIANTS, and the number of sentences.

    `shortened` are the same outputs, joined from subwords without repetitions.
    """
    outputs = {removal: tuple(lines) for removal, lines in variants(texts.hypotheses, shortened).items()}
    # Outputs without repetitions are the same in all variants.
    scored = {
        lines: scores(metrics, dataclasses.replace(texts, hypotheses=lines))
        for lines in dict.fromkeys(outputs.values())
    }
    entries: dict[str, Any] = {name: scored[outputs[removal]] for removal, name in VARIANTS.items()}
    entries["sentences"] = len(texts.hypotheses)
    return entries


def bleu_by_convention(
    hypotheses: Sequence[str], references: Sequence[str], language: str, tokeniser: str
) -> dict[str, float | None]:
    """The main metric of detokenised, cased `hypotheses` by every convention, by the names of the metrics."""
    texts = Texts(hypotheses, references, (), Corpus("", language, tokeniser))
    scored = {metric.name: score(Measured(metric, metric.settings()), texts) for metric in conventions().values()}
    return {name: None if result is None else result.figure for name, result in scored.items()}


def best_by_sentence(candidates: Sequence[Sequence[str]], references: Sequence[str], tokeniser: str) -> list[str]:
    """For each sentence the candidate with the best sentence BLEU; the first among equals.

    `candidates[number][sentence]`. No system can choose by references. Another choice may have more corpus BLEU.
    """
    metric = bleu_metric(tokeniser, effective_order=True)
    return [
        max(texts, key=lambda text: metric.sentence_score(text, [reference]).score)
        for texts, reference in zip(zip(*candidates, strict=True), references, strict=True)
    ]
