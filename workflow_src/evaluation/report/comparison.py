"""Comparison of experiments: one column each, means over seeds ± deviation, and the gap to their reference row."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from workflow_src.config.experiment import Removal, removal
from workflow_src.errors import ConfigError, InputError
from workflow_src.evaluation.document import Document, GroupRow, Paragraph, Points, Section, Table, table_of
from workflow_src.evaluation.labels import changed, common_label, words
from workflow_src.evaluation.manifest import EngineKey
from workflow_src.evaluation.report import carried
from workflow_src.evaluation.report.captions import removal_words
from workflow_src.evaluation.report.results import (
    KEY,
    NUMBER,
    TIMES,
    Mean,
    Results,
    folder_of_results,
    means,
    read_results,
    without_release,
)
from workflow_src.registry import main_metric, searches
from workflow_src.spec import Metric, parse

# The line below the title.
ABOUT = "Several experiments side by side"
# The main metric of the reference row less that of a row.
GAP = "below_reference"
# What rows of two experiments share that are compared.
ROW = ["system", "data", "label"]


@dataclasses.dataclass(frozen=True)
class Column:
    """A test set of an experiment: its title, its number of seeds, signatures by titles of metrics, and means by ROW
    and figure."""

    title: str
    dataset: str
    seeds: int
    signatures: Mapping[str, str]
    rows: dict[tuple, dict[str, Mean]]


def column(results: Results, split: str, removed: Removal | None) -> Column:
    """The figures of a test set, each row with its gap to the reference row of the same seed.

    Labels have the settings that are not the default ones, and rows with equal labels their decode's name. Raises
    InputError for results without rows of the removal.
    """
    _check_removal(results, split, removed)
    shown = results.shown(split, removed)
    names: dict[tuple, str] = {}
    for (system, decode, data), rows in shown.groupby(["system", "decode", "data"], sort=False):
        row = rows.iloc[0]
        chosen = sorted(json.loads(row["chosen"])) if row["chosen"] else []
        label = EngineKey(row["engine"]).named(common_label([*rows["label"].unique()]))
        # Experiments may choose different values of the same setting.
        picked = f"chosen: {', '.join(chosen).replace('_', ' ')}" if chosen else ""
        details = "; ".join(filter(None, [_own_settings(row, chosen), picked]))
        label += f" ({details})" if details else ""
        twin = (system, label, data) in {(of, name, kind) for (of, _, kind), name in names.items()}
        names[system, decode, data] = f"{label} ({decode})" if twin else label
    main = shown[shown["figure"] == main_metric().name]
    is_reference = [key == results.record.reference for key in zip(main["system"], main["decode"], strict=True)]
    levels = main[is_reference].set_index("seed")["value"]
    gaps = main.assign(value=main["seed"].map(levels).astype(NUMBER) - main["value"], figure=GAP).dropna(subset="value")
    figures = pd.concat([shown, gaps])
    figures["label"] = [names[key] for key in zip(figures["system"], figures["decode"], figures["data"], strict=True)]
    several = len(results.record.splits) > 1
    title = f"{results.record.experiment}, {split}" if several else results.record.experiment
    signatures = results.record.signatures.get(split, {})
    return Column(title, results.record.dataset, shown["seed"].nunique(), signatures, means(figures, ROW))


def _own_settings(row: pd.Series, chosen: Sequence[str]) -> str:
    """Settings of a row that are neither default nor in its label nor chosen on dev, in words; none of a search that is
    not declared here, or has other settings."""
    search = searches().get(row["search"])
    if search is None:
        return ""
    try:
        return words(changed(search, parse(search.settings, json.loads(row["settings"])), without=chosen))
    except ValueError:
        return ""


def _check_removal(results: Results, split: str, removed: Removal | None) -> None:
    rows = results.rows[~results.rows["autoregressive"]]
    variants = results.figures[results.figures["split"] == split].merge(rows, on=KEY)
    there = {*variants["variant"]} - {""}
    asked = {removal(False, means_repetitions, removed) for means_repetitions in variants["means_repetitions"]}
    if lacking := sorted(asked - there):
        raise InputError(
            f"the results of {results.record.experiment}",
            f"have no rows with --remove-repetitions {lacking[0]}, only {', '.join(sorted(there))}",
            "make its report again, or choose one of these",
        )


def compared_metrics(experiments: Sequence[Results]) -> list[Metric]:
    """The main metric, and measured ones that decide or have uncertainty."""
    main = main_metric()
    measured = dict.fromkeys(metric for results in experiments for metric in results.metrics)
    return [main, *(m for m in measured if m != main and (m.decides or m.uncertainty))]


def headings(experiments: Sequence[Results]) -> dict[str, tuple[str, int, float]]:
    """Compared figures: heading, digits and factor. The main metric and its gap, other metrics, and speed."""
    main, *other_metrics = compared_metrics(experiments)
    return {
        main.name: (main.axis, 1, main.factor),
        GAP: (f"{main.title} below the reference row", 1, main.factor),
        **{metric.name: (metric.axis, 1, metric.factor) for metric in other_metrics},
        "latency_ms": ("milliseconds a sentence, one at a time", 2, 1.0),
        "speedup": ("speed-up over the reference row", 2, 1.0),
    }


def read(names: Sequence[str]) -> list[Results]:
    """Results of experiments by their names or folders (`read_results`); where experiments are called the same, their
    names are followed by those of `names`.

    Raises ConfigError where two of `names` are the same experiment.
    """
    named: dict[Path, str] = {}
    for name in names:
        folder = folder_of_results(name).resolve()
        if folder in named:
            raise ConfigError("experiments", name, problem=f"it is {named[folder]} once more", hint="name it once")
        named[folder] = name
    experiments = [read_results(name) for name in names]
    counts = collections.Counter(results.record.experiment for results in experiments)
    for number, name in enumerate(names):
        title = experiments[number].record.experiment
        if counts[title] > 1:
            experiments[number] = experiments[number].renamed(f"{title} ({name})")
    return experiments


def compare(experiments: Sequence[Results], removed: Removal | None = None) -> Document:
    """The comparison of rows of all experiments: a section for each figure, whose rows are grouped by system and data,
    and the systems.

    `removed`: the removal of repetitions from non-autoregressive outputs; by default subwords, and none for outputs
    that mean repetitions. The gap is to the row of the same seed that the experiment's own report compares with. Raises
    InputError without experiments, and for results without rows of this removal.
    """
    if not experiments:
        raise InputError("the list of experiments", "is empty", "give at least one")
    columns = [column(results, split, removed) for results in experiments for split in results.record.splits]
    titles = [column.title for column in columns]
    keys = dict.fromkeys(key for column in columns for key in column.rows)
    sections = []
    for figure, (heading, digits, factor) in headings(experiments).items():
        groups: dict[str, list[list[str]]] = {}
        for system, data, label in keys:
            cells = [(column, column.rows.get((system, data, label), {}).get(figure)) for column in columns]
            if any(mean for _, mean in cells):
                # Speed is that of the first seed.
                texts = [
                    mean.text(digits, 1 if figure in TIMES else of.seeds, factor) if mean else "–" for of, mean in cells
                ]
                groups.setdefault(f"“{system}”, {data} data", []).append([label, *texts])
        rows: list[GroupRow | list[str]] = []
        for title, members in groups.items():
            rows += [GroupRow(title), *members]
        if rows:
            sections.append(Section(heading, [Table(["", *titles], rows, look="main experiments", wide=True)]))
    systems = [entry for results in experiments for entry in _systems(results)]
    if systems:
        columns_of_words = ("experiment", "system", "family", "preset", "data", "seeds")
        sections.append(Section("Systems", [table_of(systems, columns_of_words, look="plain systems", wide=True)]))
    return Document(
        title=", ".join(titles),
        about=[ABOUT],
        summary=[Paragraph.of(caption(experiments, columns, removed)), Points(tuple(map(_about, experiments)))],
        sections=sections,
    )


def _about(results: Results) -> str:
    """Data, checksum, seeds and reference row of an experiment, and a sentence where its networks were not trained
    equally long."""
    record = results.record
    sums = (record.provenance.get("corpus") or {}).get("sha256")
    data = carried.data(record.dataset, sums, results.rows["seed"])
    reference = f"Reference row: {' '.join(results.record.reference)}." if results.record.reference else ""
    return " ".join(filter(None, [f"{record.experiment}:", data, reference, carried.unequal(results.rows)]))


def _systems(results: Results) -> list[dict[str, str]]:
    """An entry for each trained system, with the figures of its first seed."""
    seeds = results.rows.groupby("system")["seed"].unique()
    return [
        {
            "experiment": results.record.experiment,
            "system": row["system"],
            "family": row["family"],
            "preset": row["preset"],
            "data": row["trained_on"],
            "seeds": ", ".join(map(str, sorted(seeds[row["system"]]))),
            "parameters": carried.count(row["parameters"]),
            "updates": carried.count(row["updates"]),
            "target tokens seen": carried.count(row["target_tokens"]),
            "minutes": "–" if pd.isna(row["minutes"]) else f"{row['minutes']:.1f}",
        }
        for row in carried.trained(results.rows).to_dict("records")
    ]


def signature_words(columns: Sequence[Column], titles: Iterable[str]) -> str:
    """A sentence for each metric with a signature, and a blank: how it counts, or that columns count differently."""
    sentences = []
    for title in titles:
        signed = [column for column in columns if title in column.signatures]
        by_column = {column.title: without_release(column.signatures[title]) for column in signed}
        ways = set(by_column.values())
        if len(ways) == 1:
            sentences.append(f"{title} is counted by {ways.pop()}. ")
        elif ways:
            named = ", ".join(f"{name} by {way}" for name, way in by_column.items())
            sentences.append(f"Columns count {title} in different ways, whose figures do not compare: {named}. ")
    return "".join(sentences)


def caption(experiments: Sequence[Results], columns: Sequence[Column], removed: Removal | None) -> str:
    """The caption of the comparison: test sets, signatures, seeds, repetitions and speed."""
    named = [f"{column.title} on {column.dataset}" for column in columns]
    others = [results.rows[~results.rows["autoregressive"]] for results in experiments]
    means_repetitions = {bool(value) for rows in others for value in rows["means_repetitions"]}
    signatures = signature_words(columns, [metric.title for metric in compared_metrics(experiments)])
    return (
        f"Test sets of {', '.join(named)}. {signatures}Means over seeds ± deviation where there are several. In "
        f"non-autoregressive outputs, {removal_words(removed, means_repetitions)}. Speeds are those of the first seed, "
        "and compare within a column, not between columns: experiments may have run on different machines. "
        f"{carried.SYSTEMS} Where a system has several seeds, its figures there are those of the first one."
    )
