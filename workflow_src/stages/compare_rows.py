"""Compare the test translations of every row with its baseline's, and of networks with their control's: p-values; and
with every autoregressive row's: differences and their errors."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.metrics import Measured, ScoringSettings
from workflow_src.data.lines import check_parallel, read_aligned, read_lines
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation.quality.computed import read_computed
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.metrics import sentence_counts
from workflow_src.evaluation.quality.significance import (
    FORMAT,
    TEST,
    Combine,
    ComparedPair,
    Comparisons,
    TestedPair,
    paired_difference,
    randomisation_test,
)
from workflow_src.evaluation.quality.variants import VARIANTS, variants
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import numbered, provenance
from workflow_src.spec import Frozen, Texts

Key = tuple[str, str, int]
Entry = TestedPair | ComparedPair
Why = Literal["baseline", "control", "autoregressive"]
WHY: dict[Why, str] = {"baseline": "a baseline", "control": "a control", "autoregressive": "autoregressive rows"}
# Counts of a metric by sentence, and the function from their sums to its figure.
CountsOf = Callable[[Measured, Sequence[str]], tuple[np.ndarray, Combine]]


class Row(Frozen):
    """A decode of test: its files, and the rows (system, name) that it is compared with: its baseline, if it has one,
    and its controls by their names."""

    system: str
    name: str
    seed: int
    baseline: tuple[str, str] | None
    controls: dict[str, tuple[str, str]] = {}
    autoregressive: bool
    repetitions_removed: Removal
    translations: Path
    details: Path

    @property
    def key(self) -> Key:
        return self.system, self.name, self.seed


class ComparisonSettings(ScoringSettings):
    rows: tuple[Row, ...] = Field(description="decodes of test: files, and the rows they are compared with")


class Inputs(JobInputs):
    settings: ComparisonSettings = Field(description="the corpus, the metrics and the rows")
    source: Path
    reference: tuple[Path, ...] = Field(min_length=1, description="one file for each reference of a source")
    computed: tuple[Path, ...] = Field((), description="figures of sentences of all rows by metrics with a program")
    output: Path


def counting(texts: Texts) -> CountsOf:
    """A function of a metric and outputs, which computes counts once for equal outputs.

    The hypotheses of `texts` are not read.
    """
    computed: dict[tuple[str, tuple[str, ...]], tuple[np.ndarray, Combine]] = {}

    def counts_of(measured: Measured, outputs: Sequence[str]) -> tuple[np.ndarray, Combine]:
        key = measured.metric.name, tuple(outputs)
        if key not in computed:
            computed[key] = sentence_counts(measured, dataclasses.replace(texts, hypotheses=outputs))
        return computed[key]

    return counts_of


@dataclasses.dataclass(frozen=True)
class Pair:
    """A row and the one that it is compared with, without the repetitions `removed`, and why: as its baseline, as its
    control, or as an autoregressive row."""

    row: Row
    other: Row
    why: Why
    removed: Removal

    def named(self, metric: str) -> dict[str, Any]:
        """Fields of an entry of significance.json that say what is compared in a metric."""
        names = {"system": self.row.system, "name": self.row.name, "seed": self.row.seed}
        other = self.other.system, self.other.name
        return {**names, "other": other, "why": self.why, "variant": self.removed, "metric": metric}


def pairs_of(rows: Sequence[Row]) -> list[Pair]:
    """All pairs of rows of one seed: with the baseline and the controls of a row, in each variant of its figures;
    and with every autoregressive row, repetitions removed as in the main table."""
    by_key = {row.key: row for row in rows}
    pairs = []
    for row in rows:
        partners: list[tuple[Why, tuple[str, str]]] = [("baseline", row.baseline)] if row.baseline else []
        partners += [("control", control) for control in row.controls.values()]
        there = [(why, other) for why, key in partners if (other := by_key.get((*key, row.seed)))]
        removals = [row.repetitions_removed] if row.autoregressive else [*VARIANTS]
        pairs += [Pair(row, other, why, removed) for why, other in there for removed in removals]
        rivals = (rival for rival in rows if rival.autoregressive and rival.seed == row.seed and rival is not row)
        pairs += [Pair(row, rival, "autoregressive", row.repetitions_removed) for rival in rivals]
    return pairs


def compared(rows: Sequence[Row], metrics: Sequence[Measured], counts_of: CountsOf) -> list[Entry]:
    """The entries of significance.json, each a pair of rows and a metric.

    Baselines are compared in every metric with uncertainty, controls in the main one, which is the first of `metrics`,
    and autoregressive rows in those that decide. Repetitions are removed from outputs that are not autoregressive, on
    both sides.
    """
    pairs = pairs_of(rows)
    compared_rows = {row.key: row for pair in pairs for row in (pair.row, pair.other)}
    lines = {key: _translations(row) for key, row in compared_rows.items()}
    entries: list[Entry] = []
    for measured in metrics:
        metric = measured.metric
        groups: dict[tuple[Why, Key, Removal], list[Pair]] = {}
        for pair in pairs:
            if metric.decides if pair.why == "autoregressive" else metric.uncertainty:
                if pair.why != "control" or measured is metrics[0]:
                    groups.setdefault((pair.why, pair.other.key, pair.removed), []).append(pair)
        for (why, other, removed), members in groups.items():
            baseline, combine = counts_of(measured, lines[other][removed])
            counts = [counts_of(measured, lines[pair.row.key][removed])[0] for pair in members]
            if why == "autoregressive":
                for pair, of_row in zip(members, counts, strict=True):
                    difference = paired_difference(of_row, baseline, combine)
                    entries.append(ComparedPair(**pair.named(metric.name), **dataclasses.asdict(difference)))
                continue
            differences, p_values = randomisation_test(baseline, np.stack(counts), combine)
            for pair, real, p in zip(members, differences, p_values, strict=True):
                entries.append(TestedPair(**pair.named(metric.name), difference=float(real), p_value=float(p)))
    return entries


def _translations(row: Row) -> dict[Removal, list[str]]:
    """A row's translations by the removal of repetitions."""
    outputs = list(read_lines(row.translations))
    if row.autoregressive:
        return dict.fromkeys(VARIANTS, outputs)
    return variants(outputs, [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(row.details)])


def run(inputs: Inputs) -> str:
    settings = inputs.settings
    rows, corpus = settings.rows, settings.corpus
    sources, references, *further = read_aligned(inputs.source, *inputs.reference)
    for row in rows:
        check_parallel(inputs.source, row.translations)
        if not row.autoregressive:
            check_parallel(row.translations, row.details)
    counts_of = counting(Texts((), references, sources, corpus, tuple(further), read_computed(inputs.computed)))
    applicable = [measured for measured in settings.measured if not measured.metric.conflict(corpus, measured.settings)]
    entries = compared(rows, applicable, counts_of)
    comparisons = Comparisons(test=TEST, pairs=tuple(entries))
    content = {"format": FORMAT, "sentences": len(references), **comparisons.model_dump(mode="json")}
    files: dict[str, str | Path] = {"source": inputs.source, **numbered("reference", inputs.reference)}
    files |= {f"{row.system} {row.name} {row.seed}": row.translations for row in rows}
    files |= {f"details of {row.system} {row.name} {row.seed}": row.details for row in rows if not row.autoregressive}
    files |= {f"computed {number}": path for number, path in enumerate(inputs.computed, 1)}
    write_json(inputs.output, content | {"provenance": provenance(recorded(settings), files)})
    compared_rows = {(entry.why, entry.system, entry.name, entry.seed) for entry in entries}
    counts = Counter(why for why, *_ in compared_rows)
    words = ", ".join(f"{counts[why]} with {what}" for why, what in WHY.items())
    return f"{inputs.output}: of {len(rows)} rows compared {words}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
