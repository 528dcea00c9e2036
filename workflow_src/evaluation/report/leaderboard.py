"""The leaderboard: every measured row of many experiments as one CSV file.

A row of the file is a system, decode and seed, in the variant of repetitions that stands for the decode in the main
table of its report (`config.experiment.removal`).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_src.errors import ArtifactError
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.results import KEY, Mean, Results, as_csv, means, read_results
from workflow_src.registry import main_metric, project_metrics

METRICS = tuple(metric for metric in project_metrics() if metric.leaderboard)
SCORES = tuple(
    f"{metric.name}{end}" for metric in METRICS for end in (("", "_low", "_high") if metric.uncertainty else ("",))
)
COLUMNS = (
    *"experiment corpus source target test_set system family preset data search settings engine seed".split(),
    *SCORES,
    *"latency_ms threads sentences_per_second batch parameters updates target_tokens hardware commit signature".split(),
)
# Columns that identify a run: rows of a run that are read later replace all its earlier rows.
RUN = ("experiment", "corpus", "source", "target")
NUMBERS = (*SCORES, "latency_ms", "sentences_per_second")
# Digits of figures, enough that rounding them again in tables changes nothing.
DIGITS = 4
Row = Mapping[str, str]


def rows_of(results: Results) -> list[dict[str, str]]:
    """The rows of an experiment's results, by COLUMNS, those of the main test set first; unknown values are empty."""
    record, provenance = results.record, results.record["provenance"]
    sums = (provenance.get("corpus") or {}).get("sha256") or {}
    # Figures of a program are comparable only under the same model, which its signature names.
    signed = [metric.title for metric in METRICS if metric is main_metric() or metric.program]
    experiment = {
        "experiment": record["experiment"],
        "corpus": record["dataset"],
        "source": record["source"],
        "target": record["target"],
        "hardware": _hardware(provenance),
        "commit": provenance.get("commit"),
    }
    cells = []
    for number, split in enumerate(record["splits"]):
        digest = checksum({name: value for name, value in sums.items() if name.startswith(f"{split}.")})
        signatures = record["signatures"].get(split, {})
        about = experiment | {
            "test_set": f"{split}:{digest[:12]}" if digest else split,
            "signature": "; ".join(signatures[title] for title in signed if title in signatures),
        }
        figures = means(results.shown(split), KEY)
        for row in results.rows.astype(object).where(results.rows.notna(), None).to_dict("records"):
            of_row = figures.get(tuple(row[name] for name in KEY))
            if of_row is not None:
                # Speed is measured on the main test set.
                timing = {} if number == 0 else dict.fromkeys(("threads", "batch"))
                settings = {"settings": settings_text(json.loads(row["settings"])), "data": row["trained_on"]}
                cells.append(_cells(row | about | settings | timing | _figures(of_row)))
    return cells


def _figures(means: Mapping[str, Mean]) -> dict[str, str]:
    """Figures of a row by column."""
    figures = {name: _fixed(means[name].value) for name in NUMBERS if name in means}
    for metric in METRICS:
        mean = means.get(metric.name)
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
    if path.suffix == ".csv":
        return _read_csv(path)
    return rows_of(read_results(path))


def _read_csv(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, heads = list(reader), tuple(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise ArtifactError(path, f"cannot be read as a leaderboard: {failure}", "name another file") from failure
    if heads != COLUMNS:
        differing = sorted(set(heads) ^ set(COLUMNS)) or ["their order"]
        raise ArtifactError(
            path,
            f"has other columns than a leaderboard ({', '.join(differing)})",
            "name a CSV file that `continuum leaderboard` wrote",
        )
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ArtifactError(path, f"has not {len(COLUMNS)} cells", "mend the line", line=number)
        for name in NUMBERS:
            if not _is_number(row[name]) and (row[name] or name == main_metric().name):
                raise ArtifactError(
                    path, f"has {row[name] or 'nothing'} as {name}", "write a number there", line=number
                )
    return rows


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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
    return as_csv(pd.DataFrame(rows, columns=list(COLUMNS)))


def settings_text(settings: Mapping[str, bool | float | str | None]) -> str:
    """Settings in a cell: `name=value` separated by blanks, without null values."""
    return " ".join(
        f"{name}={f'{value:g}' if isinstance(value, float) else value}"
        for name, value in settings.items()
        if value is not None
    )
