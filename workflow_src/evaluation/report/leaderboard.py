"""The leaderboard: every measured row of many experiments as one CSV file.

A row of the file is a system, decode and seed, in the variant of repetitions that stands for the decode in the main
table of its report (`config.experiment.removal`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_src.errors import ArtifactError, short_repr
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.csv_tables import TEXT, as_csv, finite, read_csv
from workflow_src.evaluation.report.results import KEY, Mean, Results, means, read_results
from workflow_src.registry import main_metric, project_metrics

METRICS = tuple(metric for metric in project_metrics() if metric.leaderboard)
SCORES = tuple(
    f"{metric.name}{end}" for metric in METRICS for end in (("", "_low", "_high") if metric.uncertainty else ("",))
)
# The main metric on dev, of rows that were decoded there.
ON_DEV = f"{main_metric().name}_dev"
COLUMNS = (
    *"experiment corpus source target test_set dev_set system family preset data search settings engine seed".split(),
    *SCORES,
    ON_DEV,
    *"latency_ms threads sentences_per_second batch parameters updates target_tokens hardware commit signature".split(),
)
# Columns that identify a run: rows of a run that are read later replace all its earlier rows.
RUN = ("experiment", "corpus", "source", "target")
NUMBERS = (*SCORES, ON_DEV, "latency_ms", "sentences_per_second")
# Digits of figures, enough that rounding them again in tables changes nothing.
DIGITS = 4
Row = Mapping[str, str]
# What stands between the signatures of a row; that of the main metric is the first.
BETWEEN_SIGNATURES = "; "
ADVICE = "name a CSV file that `continuum leaderboard` wrote"


def rows_of(results: Results) -> list[dict[str, str]]:
    """The rows of an experiment's results, by COLUMNS, those of the main test set first; unknown values are empty."""
    record, provenance = results.record, results.record.provenance
    sums = (provenance.get("corpus") or {}).get("sha256") or {}

    def digest(split: str) -> str:
        of_split = {name: value for name, value in sums.items() if name.startswith(f"{split}.")}
        return (checksum(of_split) or "")[:12]

    experiment = {
        "experiment": record.experiment,
        "corpus": record.dataset,
        "source": record.source,
        "target": record.target,
        "dev_set": digest("dev"),
        "hardware": _hardware(provenance),
        "commit": provenance.get("commit"),
    }
    removed = record.remove_repetitions
    on_dev = means(results.shown("dev", removed), KEY)
    cells = []
    for number, split in enumerate(record.splits):
        by_title = record.signatures.get(split, {})
        signatures = [by_title[metric.title] for metric in METRICS if metric.title in by_title]
        about = experiment | {
            "test_set": ":".join(filter(None, (split, digest(split)))),
            "signature": BETWEEN_SIGNATURES.join(signatures),
        }
        figures = means(results.shown(split, removed), KEY)
        for row in results.rows.astype(object).where(results.rows.notna(), None).to_dict("records"):
            key = tuple(row[name] for name in KEY)
            if of_row := figures.get(key):
                # Speed is measured on the main test set.
                timing = {} if number == 0 else dict.fromkeys(("threads", "batch"))
                data = {"data": row["trained_on"]}
                cells.append(_cells(row | about | data | timing | _figures(of_row, on_dev.get(key, {}))))
    return cells


def _figures(of_row: Mapping[str, Mean], on_dev: Mapping[str, Mean]) -> dict[str, str]:
    """Figures of a row by column."""
    figures = {name: _fixed(of_row[name].value) for name in NUMBERS if name in of_row}
    if dev := on_dev.get(main_metric().name):
        figures[ON_DEV] = _fixed(dev.value)
    for metric in METRICS:
        mean = of_row.get(metric.name)
        if mean and mean.low is not None and mean.high is not None:
            figures |= {f"{metric.name}_low": _fixed(mean.low), f"{metric.name}_high": _fixed(mean.high)}
    return figures


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: "" if row.get(name) is None else str(row[name]) for name in COLUMNS}


def _fixed(value: float) -> str:
    return f"{value:.{DIGITS}f}"


def _hardware(provenance: Mapping[str, Any]) -> str:
    """The machine that measured speed, or else the one that wrote the results."""
    timed = ((provenance.get("speed") or {}).get("provenance") or {}).get("hardware")
    hardware = timed or provenance.get("hardware") or {}
    cores = f"{hardware['cores']} cores" if hardware.get("cores") else None
    return ", ".join(filter(None, [hardware.get("accelerator"), hardware.get("processor"), cores]))


def read(path: str | Path) -> list[dict[str, str]]:
    """Rows of an experiment (`results.read_results`), or of a leaderboard's CSV file.

    Raises ArtifactError for anything else.
    """
    path = Path(path)
    if path.suffix != ".csv":
        return rows_of(read_results(path))
    table = read_csv(path, dict.fromkeys(COLUMNS, TEXT), ADVICE, optional=(ON_DEV,))
    rows: list[dict[str, str]] = table.to_dict("records")
    for line, row in zip(table.index, rows, strict=True):
        if not _is_object(row["settings"]):
            problem = f"has {short_repr(row['settings'])} as settings"
            raise ArtifactError(path, problem, "write a JSON object", line=line)
        for name in NUMBERS:
            if not _is_number(row[name]) and (row[name] or name == main_metric().name):
                raise ArtifactError(path, f"has {row[name] or 'nothing'} as {name}", "write a number", line=line)
    return rows


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _is_number(text: str) -> bool:
    try:
        finite(text)
    except ValueError:
        return False
    return True


def merge(row_lists: Iterable[Iterable[dict[str, str]]]) -> list[dict[str, str]]:
    """All rows in the order of their experiments; rows of a run replace all its rows in earlier lists."""
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for rows in row_lists:
        current_runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows:
            current_runs.setdefault(tuple(row[name] for name in RUN), []).append(row)
        runs |= current_runs
    return [row for _, rows in sorted(runs.items()) for row in rows]


def csv_text(rows: Iterable[Row]) -> str:
    """The rows as a CSV file; the column of figures on dev is there where some row has one."""
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return as_csv(table if table[ON_DEV].any() else table.drop(columns=ON_DEV))
