"""Compare the test translations of every row with its baseline's, and of networks with their control's: p-values; and
with every autoregressive row's: differences and their errors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.metrics import Measured, ScoringSettings
from workflow_src.data.lines import check_parallel, read_aligned, read_lines
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation.quality.computed import read_computed
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.metrics import sentence_counts
from workflow_src.evaluation.quality.significance import FORMAT, TEST, Combine, paired_differences, randomisation_test
from workflow_src.evaluation.quality.variants import VARIANTS, variants
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import numbered, provenance
from workflow_src.registry import controls
from workflow_src.spec import Frozen, Texts

Key = tuple[str, str, int]
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


def compared(
    rows: Sequence[Row], metrics: Sequence[Measured], counts_of: CountsOf, against: str = "baseline"
) -> list[dict[str, Any]]:
    """Rows with `difference` in the main metric and `p_value` by variant, against the row that `against` names in each.

    The first of `metrics` is the main metric; entries have the same of the others in their `metrics`, by name. Rows
    without such a row of their own seed are left out. Repetitions are removed from outputs that are not autoregressive,
    on both sides of a comparison, as the variant's name says.
    """
    by_key = {row.key: row for row in rows}
    groups: dict[Key, list[Key]] = {}
    for key, row in by_key.items():
        partner = row.baseline if against == "baseline" else row.controls.get(against)
        if partner and (*partner, row.seed) in by_key:
            groups.setdefault((*partner, row.seed), []).append(key)
    lines = {key: _translations(by_key[key]) for key in {*groups, *itertools.chain(*groups.values())}}
    tested: dict[Key, dict[str, Any]] = {key: {} for keys in groups.values() for key in keys}
    for number, metric in enumerate(metrics):
        for removal, variant in VARIANTS.items():
            counted = {key: counts_of(metric, by_removal[removal]) for key, by_removal in lines.items()}
            for partner_key, keys in groups.items():
                baseline, combine = counted[partner_key]
                counts = np.stack([counted[key][0] for key in keys])
                for key, difference, p in zip(keys, *randomisation_test(baseline, counts, combine), strict=True):
                    entry = tested[key]
                    entry[against] = list(partner_key[:2])
                    if number:
                        entry = entry.setdefault("metrics", {}).setdefault(metric.metric.name, {})
                    entry.setdefault("difference", {})[variant] = float(difference)
                    entry.setdefault("p_value", {})[variant] = float(p)
    return [{"system": key[0], "name": key[1], "seed": key[2]} | tested[key] for key in by_key if key in tested]


def against_autoregressive(
    rows: Sequence[Row], metrics: Sequence[Measured], counts_of: CountsOf
) -> list[dict[str, Any]]:
    """Differences of every row from each autoregressive row of its seed, repetitions removed as in the main table.

    A row has one entry a rival in `against`: its system and name, and by the name of each of the metrics the fields of
    a `PairedDifference`.
    """
    entries = []
    for seed in dict.fromkeys(row.seed for row in rows):
        of_seed = [row for row in rows if row.seed == seed]
        rivals = [number for number, row in enumerate(of_seed) if row.autoregressive]
        if not rivals:
            continue
        lines = [_translations(row)[row.repetitions_removed] for row in of_seed]
        differences = {}
        for metric in metrics:
            counted = [counts_of(metric, outputs) for outputs in lines]
            differences[metric.metric.name] = paired_differences(
                [counts for counts, _ in counted], rivals, counted[0][1]
            )
        for number, row in enumerate(of_seed):
            against = [
                {"system": of_seed[rival].system, "name": of_seed[rival].name}
                | {name: dataclasses.asdict(table[index][number]) for name, table in differences.items()}
                for index, rival in enumerate(rivals)
                if rival != number
            ]
            entries.append({"system": row.system, "name": row.name, "seed": seed, "against": against})
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
    uncertain, deciding = (
        [measured for measured in applicable if getattr(measured.metric, flag)] for flag in ("uncertainty", "decides")
    )
    with_baseline = compared(rows, uncertain, counts_of)
    # Does a trained network beat its control, which needs none?
    with_controls = {name: compared(rows, uncertain[:1], counts_of, name) for name in controls()}
    content = {
        "format": FORMAT,
        "test": TEST,
        "sentences": len(references),
        "rows": with_baseline,
        "against_autoregressive": against_autoregressive(rows, deciding, counts_of),
        **{f"against_{name}": entries for name, entries in with_controls.items()},
    }
    files: dict[str, str | Path] = {"source": inputs.source, **numbered("reference", inputs.reference)}
    files |= {f"{row.system} {row.name} {row.seed}": row.translations for row in rows}
    files |= {f"details of {row.system} {row.name} {row.seed}": row.details for row in rows if not row.autoregressive}
    files |= {f"computed {number}": path for number, path in enumerate(inputs.computed, 1)}
    write_json(inputs.output, content | {"provenance": provenance(recorded(settings), files)})
    counts = "".join(f", {len(entries)} with {name}" for name, entries in with_controls.items())
    return f"{inputs.output}: {len(with_baseline)} of {len(rows)} rows compared with their baseline{counts}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
