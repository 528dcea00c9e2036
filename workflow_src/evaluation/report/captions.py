"""Captions of the tables of rows, with notes on how to read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.tokenisers import BleuTokeniser
from workflow_src.evaluation import conventions
from workflow_src.evaluation.document import Caption
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.results import signature_tokeniser
from workflow_src.evaluation.report.tables import Group, row_words
from workflow_src.spec import Metric

OTHER_TOKENISERS = {*get_args(BleuTokeniser)} - {"13a"}


def main_caption(
    manifest: Manifest, split: str, sentences: int | None, timed: bool, data: str = "", further: Mapping[str, str] = {}
) -> Caption:
    """Caption of the main table. `data` names the corpus; `further` notes are by their subjects."""
    removed, seeds = manifest.report.remove_repetitions, len({row.seed for row in manifest.rows})
    count = f", {sentences:,} sentences" if sentences else ""
    measured, direction = "Quality and speed" if timed else "Quality", f"{manifest.source}→{manifest.target}"
    line = f"{measured} on {split} of {manifest.dataset} ({direction}{count})."
    notes = {
        "Repetitions": "In non-autoregressive outputs, "
        f"{conventions.removal_words(removed, manifest.means_repetitions)}; "
        "autoregressive outputs are scored as they are.",
        **({"Brackets": "The 95 % bootstrap interval."} if seeds == 1 else {}),
        **({"±": f"Figures are means ± deviation over {seeds} seeds."} if seeds > 1 else {}),
        "References": reference_words(manifest, split),
    }
    return Caption(f"{line} {data}".strip(), {**notes, **further, **(speed_notes(manifest, seeds) if timed else {})})


def bold_words(manifest: Manifest) -> str:
    """A sentence about bold figures in a table of rows."""
    text = f"Bold: the {manifest.main.best} {manifest.main.title}"
    both = len({decode.system.family.autoregressive for decode in manifest.decodes}) > 1
    return f"{text} of all rows, and of those without autoregression." if both else f"{text}."


def reference_words(manifest: Manifest, split: str) -> str:
    """A sentence about scoring with several references of a source; empty where there is one."""
    count = manifest.references(split)
    if count == 1:
        return ""
    alone = [metric.title for metric in manifest.metrics if metric.references == "first"]
    return f"Each source has {count}, which count together as in sacreBLEU." + (
        f" {', '.join(alone)}: the first one alone." if alone else ""
    )


def removal_caption(manifest: Manifest, split: str, data: str, notes: Mapping[str, str]) -> Caption:
    """Caption of the table of ways to remove repetitions; all captions have `data` and `notes`."""
    removed = conventions.removal_words(manifest.report.remove_repetitions, manifest.means_repetitions)
    return Caption(
        f"{manifest.main.title} on {split}, by what is done about repetitions. {data}".strip(),
        {
            "Columns": "Repetitions kept; words that repeat the one before removed from the text; subwords that repeat "
            "the one before removed before they are joined to words.",
            "Main table": f"{removed[0].upper()}{removed[1:]}.",
            **notes,
        },
    )


def speed_notes(manifest: Manifest, seeds: int) -> dict[str, str]:
    """Notes on the columns of speed."""
    reference = manifest.reference
    whose = ", with the systems of the first seed" if seeds > 1 else ""
    return {
        "Latency": f"The median over sentences, one at a time, from text to text{whose}. ±: the standard deviation "
        "over sentences, which differ in length; it is no error of the median. Medians of rounds, the lowest and the "
        "highest, show how well it repeats; an asterisk marks a round that other processes disturbed.",
        "Speed-up": f"Of median latency, over {row_words(reference)}." if reference else "",
    }


def scored_words(normalisation: NormalisationConfig, metrics: Sequence[Metric], signatures: Mapping[str, str]) -> str:
    """Sentences about the metrics and the scored text, with the tokeniser of BLEU where it is not the default."""
    titles: dict[str, list[str]] = {}
    for metric in metrics:
        tokeniser = signature_tokeniser(signatures.get(metric.title, ""))
        by = f", by its tokeniser {tokeniser}" if tokeniser in OTHER_TOKENISERS else ""
        if metric.about:
            titles.setdefault(f"{metric.about}{by}", []).append(metric.title)
    sentences = [f"{', '.join(metric_titles)}: {description}." for description, metric_titles in titles.items()]
    text = "Text is detokenised and cased."
    if normalisation.references == "normalised":
        case = "lowercased" if normalisation.lowercase else "cased"
        text = f"Text is detokenised and {case}; references are normalised like the training text."
    return " ".join([*sentences, text])


def margin_words(margin: float, metrics: Sequence[Metric]) -> str:
    """So many points of each metric, such as "0.5 BLEU and 0.5 % valid outputs"."""
    return " and ".join(f"{margin:g}{metric.unit and f' {metric.unit}'} {metric.title}" for metric in metrics)


def rival_words(table: Sequence[Group], evidence: Evidence) -> str:
    """A note on rows that are as good as others, and on the column of speed-ups over the fastest of them; empty where
    rows were not compared."""
    if not evidence.pairs:
        return ""
    limits = [
        f"{'below' if metric.better == 'higher' else 'above'} {metric.least:g} {metric.title}"
        for metric in evidence.metrics
        if metric.least is not None
    ]
    empty = [*limits, "where a training ended while it was still improving much"]
    margin = margin_words(evidence.margin, evidence.metrics)
    text = (
        f"A row is as good as another one where it is shown to lose less than {margin}: the lower end of the paired "
        f"interval of their difference ({100 * (1 - LEVEL):g} % for all rows of the table together) lies above that "
        "margin."
    )
    if all(line.figures["against_fastest"] is None for group in table for line in group.lines):
        return text
    return (
        f"{text} The column compares with the fastest autoregressive row that is as good, on the same kind of engine "
        f"(PyTorch, or others of one compute type). It is empty {', and '.join(empty)}."
    )
