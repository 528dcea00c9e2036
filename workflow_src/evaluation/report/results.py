"""The results of an experiment as two tables, which every table of a report and every comparison reads.

`rows.csv` describes each row: a system, a decode and a seed. `figures.csv` has one figure of one row in a line, so that
a new metric is a new value of a column. `provenance.json` says what both are made from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from workflow_src.config import texts
from workflow_src.config.experiment import REMOVALS, Removal, removal
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.content import Content
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.manifest import Row as ManifestRow
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report.csv_tables import BOOL, COUNT, NUMBER, TEXT, as_csv, as_table, read_csv
from workflow_src.evaluation.report.files import RowKey, Significance, TrainingSummary
from workflow_src.evaluation.report.trained import Training
from workflow_src.evaluation.speed.measured import Speed
from workflow_src.records.atomic import atomic, read_json, write_json
from workflow_src.records.checked import Lenient, check_format, checked
from workflow_src.registry import metrics
from workflow_src.spec import Metric

AGAIN = "make the report again"
# Written after the tables.
RECORD = "provenance.json"
FORMAT = 6
# Types of the columns by file.
COLUMNS: dict[str, dict[str, str]] = {
    # An empty variant is that of figures which do not depend on repetitions. `p` is that of the difference from the row
    # `against`, and `n` the number of sentences.
    "figures.csv": {
        **dict.fromkeys(("split", "system", "decode"), TEXT),
        "seed": COUNT,
        **dict.fromkeys(("variant", "figure"), TEXT),
        **dict.fromkeys(("value", "low", "high", "p"), NUMBER),
        "against": TEXT,
        "n": COUNT,
    },
    # `trained_on` are training texts with their weights, `label` the search and its settings in words; settings, the
    # ones that dev chose and the rounds of timing are JSON.
    "rows.csv": {
        **dict.fromkeys(("system", "decode"), TEXT),
        "seed": COUNT,
        "family": TEXT,
        **dict.fromkeys(("autoregressive", "means_repetitions"), BOOL),
        **dict.fromkeys(("preset", "data", "trained_on", "search", "label", "settings", "chosen", "engine"), TEXT),
        **dict.fromkeys(("parameters", "updates", "target_tokens"), COUNT),
        "minutes": NUMBER,
        "device": TEXT,
        **dict.fromkeys(("threads", "batch"), COUNT),
        **dict.fromkeys(("latency_rounds", "disturbed_rounds"), TEXT),
    },
}
KEY = ["system", "decode", "seed"]
# The difference from the control row, which differs in the refining search alone, in the main metric.
FROM_CONTROL = "from_control"
TIMES = ("latency_ms", "latency_std", "sentences_per_second", "speedup")


def signature_tokeniser(signature: str) -> str:
    """The tokeniser in a signature of sacreBLEU."""
    return next((part.partition(":")[2] for part in signature.split("|") if part.startswith("tok:")), "13a")


def without_release(signature: str) -> str:
    """A signature without the release of sacreBLEU: releases count alike."""
    return "|".join(part for part in signature.split("|") if not part.startswith("version:"))


class Record(Lenient):
    """The content of provenance.json, beside its format.

    `source` and `target` are languages; `splits` are those with figures of test sets, the one of the tables first;
    `metrics` are names, the main one first; `remove_repetitions` is the setting of the report; `reference` is the row
    (system and decode) that others are compared with; `signatures` are those of metrics by split and title.
    """

    experiment: str
    dataset: str
    source: str
    target: str
    splits: tuple[str, ...] = Field(min_length=1)
    metrics: tuple[str, ...] = Field(min_length=1)
    remove_repetitions: Removal | None
    reference: tuple[str, str] | None
    signatures: dict[str, dict[str, str]]
    provenance: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Mean:
    """A figure of a row: the mean over the `seeds` that have it, and its deviation (n - 1; None for one seed).

    `low`, `high` and `p` are those of one seed; None where there are several, or the figure has none.
    """

    value: float
    deviation: float | None = None
    seeds: int = 1
    low: float | None = None
    high: float | None = None
    p: float | None = None

    def text(self, digits: int, seeds: int, factor: float = 1.0) -> str:
        """The mean ± deviation, and how many of a number of seeds have it, unless all do."""
        spread = "" if self.deviation is None else f" ± {factor * self.deviation:.{digits}f}"
        fewer = f" ({self.seeds} of {seeds} seeds)" if self.seeds < seeds else ""
        return f"{factor * self.value:.{digits}f}{spread}{fewer}"


def means(figures: pd.DataFrame, by: Sequence[str] = ("system", "decode")) -> dict[tuple, dict[str, Mean]]:
    """Means over seeds of lines of `figures.csv`, by the columns `by` and the name of the figure, in their order."""
    groups = figures.groupby([*by, "figure"], sort=False)
    columns = groups.agg(
        value=("value", "mean"),
        deviation=("value", "std"),
        seeds=("value", "count"),
        **{name: (name, "first") for name in ("low", "high", "p")},
    )
    table: dict[tuple, dict[str, Mean]] = {}
    for (*key, figure), value, deviation, seeds, low, high, p in columns.itertuples(name=None):
        of_one = (None if seeds > 1 else _known(end) for end in (low, high, p))
        table.setdefault(tuple(key), {})[figure] = Mean(value, _known(deviation), seeds, *of_one)
    return table


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


@dataclasses.dataclass(frozen=True)
class Results:
    """Tables with the columns of COLUMNS, and the content of provenance.json."""

    rows: pd.DataFrame
    figures: pd.DataFrame
    record: Record

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics; one that is not declared here has its name as its title."""
        declared = metrics()
        return tuple(declared.get(name) or Metric(name=name, title=name) for name in self.record.metrics)

    def renamed(self, experiment: str) -> Results:
        """The same results of an experiment with this name."""
        return dataclasses.replace(self, record=self.record.model_copy(update={"experiment": experiment}))

    def shown(self, split: str, removed: Removal | None = None) -> pd.DataFrame:
        """Lines of `figures` on a split, of the variant of each row that tables with the setting `removed` show
        (`config.experiment.removal`), with the columns of its row."""
        shown = self.figures[self.figures["split"] == split].merge(self.rows, on=KEY)
        variants = [
            removal(autoregressive, means_repetitions, removed)
            for autoregressive, means_repetitions in zip(
                shown["autoregressive"], shown["means_repetitions"], strict=True
            )
        ]
        kept = (shown["variant"] == "") | (shown["variant"] == pd.Series(variants, index=shown.index, dtype=TEXT))
        return shown[kept]

    def write(self, folder: Path) -> None:
        """Check the tables, then write them and the record, which comes last. Raises ArtifactError."""
        self.check(folder)
        for name, table in self.tables():
            with atomic(folder / name) as file:
                file.write(as_csv(table))
        write_json(folder / RECORD, {"format": FORMAT, **self.record.model_dump(mode="json")})

    def tables(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """The tables by the names of their files."""
        yield "figures.csv", self.figures
        yield "rows.csv", self.rows

    def check(self, folder: Path) -> None:
        """Raises ArtifactError for a figure that cannot be one, or that belongs to no row."""
        path, figures = folder / "figures.csv", self.figures
        bounds = {metric.name: metric.bounds for metric in self.metrics}
        low, high = (figures["figure"].map({name: ends[end] for name, ends in bounds.items()}) for end in (0, 1))
        outside = (figures["value"] < low.astype(NUMBER)) | (figures["value"] > high.astype(NUMBER))
        known = pd.MultiIndex.from_frame(self.rows[KEY])
        for wrong, problem in (
            (~np.isfinite(figures["value"]), "has no number as value"),
            (figures["figure"].isin(TIMES[:1]) & (figures["value"] <= 0), "has a time that is not above 0"),
            (outside, "has a figure outside of the bounds of its metric"),
            (figures["low"] > figures["high"], "has low above high"),
            ((figures["p"] < 0) | (figures["p"] > 1), "has a p-value that is not between 0 and 1"),
            (~pd.MultiIndex.from_frame(figures[KEY]).isin(known), "has a figure of a row that rows.csv lacks"),
            (figures.duplicated(["split", *KEY, "variant", "figure"]), "has a figure twice"),
        ):
            if np.any(wrong):
                number = int(np.argmax(np.asarray(wrong)))
                line = ", ".join(str(value) for value in figures.iloc[number] if not pd.isna(value) and value != "")
                raise ArtifactError(path, f"{problem} ({line})", AGAIN, line=int(figures.index[number]))
        if self.rows.duplicated(KEY).any():
            raise ArtifactError(folder / "rows.csv", "has a row twice", AGAIN)


def folder_of_results(named: str | Path) -> Path:
    """The folder of an experiment's results, from its name, its folder, its report's folder, or the path of a file
    there.

    Raises ArtifactError where there is none.
    """
    path = Path(named)
    folders = [path.parent] if path.is_file() else [path, path / "report", Path("results", path, "report")]
    folder = next((folder for folder in folders if (folder / RECORD).is_file()), None)
    if folder is None:
        raise ArtifactError(named, "has no results", f"name a finished experiment, or its folder with {RECORD}")
    return folder


def read_results(named: str | Path) -> Results:
    """The results of an experiment, which is `named` as for `folder_of_results`.

    Raises ArtifactError where there are none, and where they are damaged.
    """
    folder = folder_of_results(named)
    content = read_json(folder / RECORD)
    check_format(content, FORMAT, str(folder / RECORD), AGAIN)
    record = checked(Record, content, str(folder / RECORD), AGAIN)
    rows, figures = (read_csv(folder / name, COLUMNS[name], AGAIN) for name in ("rows.csv", "figures.csv"))
    results = Results(rows, figures, record)
    results.check(folder)
    return results


def build(
    manifest: Manifest,
    qualities: Mapping[str, Quality],
    trainings: Iterable[Training] = (),
    speed: Speed | None = None,
    tested: Mapping[str, Significance] = {},
    analysed: Iterable[Content] = (),
    signatures: Mapping[str, Mapping[str, str]] = {},
) -> Results:
    """The results of an experiment, in its order.

    `qualities` maps quality files to their contents, `tested` test sets to comparisons of rows, and `analysed` has
    contents of analyses, some of which have figures of rows. Speed is measured on the split of the tables, with the
    systems of the first seed, and is in its figures alone.
    """
    trained = {(training.system.name, training.seed): training for training in trainings}
    times = {row.key: row for row in speed.rows} if speed else {}
    rows: dict[RowKey, dict[str, Any]] = {}
    figures: list[dict[str, Any]] = []
    split, analysed = manifest.plan.shown_split, list(analysed)
    timed = (split, manifest.plan.first_seed)
    for row in manifest.rows:
        key, quality = (*row.key, row.seed), qualities[row.quality]
        rows.setdefault(key, _described(row, manifest, trained.get((row.system, row.seed)), speed))
        for entry in (
            *_scores(row, manifest, quality, tested.get(row.split)),
            *_analysed(key, row.split, analysed),
            *(_times(times[row.key], speed) if speed and row.key in times and (row.split, row.seed) == timed else ()),
        ):
            figures.append({"split": row.split, **dict(zip(KEY, key, strict=True)), **entry})
    record = Record(
        experiment=manifest.plan.experiment,
        dataset=manifest.dataset,
        source=manifest.source,
        target=manifest.target,
        splits=(split, *(manifest.test_sets[1:] if split != "dev" else ())),
        metrics=tuple(metric.name for metric in manifest.metrics),
        remove_repetitions=manifest.report.remove_repetitions,
        reference=manifest.reference and manifest.reference.key,
        signatures={name: dict(by_title) for name, by_title in signatures.items()},
        provenance={},
    )
    described = as_table(list(rows.values()), COLUMNS["rows.csv"])
    return Results(described, as_table(figures, COLUMNS["figures.csv"]), record)


def _described(row: ManifestRow, manifest: Manifest, trained: Training | None, speed: Speed | None) -> dict[str, Any]:
    """What identifies a row, and how it was trained and timed."""
    decode = manifest.decode(*row.key)
    system, search = decode.system, decode.search
    kind = texts.kind_of(system.learnt_data)
    config = trained.config if trained else TrainingSummary()
    description = {
        **dict(zip(KEY, (*row.key, row.seed), strict=True)),
        "family": system.family.name,
        "autoregressive": system.family.autoregressive,
        "means_repetitions": decode.means_repetitions,
        "preset": system.preset,
        "data": kind,
        "trained_on": trained.data if trained else kind,
        "search": search.name,
        "label": search.row_label(row.settings),
        "settings": json.dumps(row.settings.model_dump(mode="json"), ensure_ascii=False),
        "chosen": json.dumps(row.picked, ensure_ascii=False) if row.picked else None,
        "engine": decode.engine.key,
        "parameters": config.parameters,
        "updates": config.steps,
        "target_tokens": config.target_tokens_seen,
        "minutes": config.minutes,
    }
    timed = next((timed for timed in speed.rows if timed.key == row.key), None) if speed else None
    if speed and timed:
        description |= {"device": speed.protocol.device, "threads": speed.protocol.threads, "batch": timed.batch}
        rounds = {"latency_rounds": timed.latency_rounds, "disturbed_rounds": speed.protocol.disturbed}
        description |= {name: json.dumps(values) for name, values in rounds.items()}
    return description


def _scores(
    row: ManifestRow, manifest: Manifest, quality: Quality, tested: Significance | None
) -> Iterator[dict[str, Any]]:
    """Figures by metric and removal of repetitions; of an autoregressive decode there is one variant."""
    decode, key, n = manifest.decode(*row.key), (*row.key, row.seed), quality.sentences
    compared = tested.tested if tested else {}
    if quality.mean_steps is not None and (decode.search.counts or decode.search.settings.named("stop")):
        yield {"figure": "mean_steps", "value": quality.mean_steps, "n": n}
    for removed in ("none",) if decode.autoregressive else REMOVALS:
        scores, common = quality.figures(removed), {"variant": removed, "n": n}
        for metric in manifest.metrics:
            value, interval = scores.get(metric.name), scores.get(f"{metric.name}_ci")
            if value is None:
                continue
            entry = common | {"figure": metric.name, "value": value}
            if interval and metric.uncertainty:
                entry |= dict(zip(("low", "high"), interval, strict=True))
            if pair := compared.get((key, "baseline", removed, metric.name)):
                entry |= {"p": pair.p_value, "against": "/".join(pair.other)}
            yield entry
        if pair := compared.get((key, "control", removed, manifest.main.name)):
            difference = {"value": pair.difference, "p": pair.p_value, "against": "/".join(pair.other)}
            yield common | {"figure": FROM_CONTROL} | difference


def _analysed(key: RowKey, split: str, contents: Iterable[Content]) -> Iterator[dict[str, Any]]:
    """Figures of a row that analyses fill columns with: those of its first line."""
    for content in contents:
        for table, lines in content.tables if content.split == split else ():
            columns = [figure.key for figure in table.figures if figure.column]
            line = next((line for line in lines if (line.system, line.name, line.seed) == key), None)
            entry = line.model_dump() if line and columns else {}
            common = {"variant": entry.get("repetitions_removed"), "n": entry.get("sentences")}
            for figure in columns:
                if entry.get(figure) is not None:
                    yield common | {"figure": figure, "value": entry[figure]}


def _times(timed: Any, speed: Speed) -> Iterator[dict[str, Any]]:
    reference = speed.protocol.baseline
    for figure in TIMES:
        if getattr(timed, figure) is not None:
            entry = {"figure": figure, "value": getattr(timed, figure), "n": speed.protocol.sentences}
            yield entry | (
                {"against": f"{reference.system}/{reference.name}"} if figure == "speedup" and reference else {}
            )
