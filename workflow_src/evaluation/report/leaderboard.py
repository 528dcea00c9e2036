"""The leaderboard: every measured row of many experiments as one CSV file.

A row of the file is a system, decode and seed, in the variant of repetitions that stands for the decode in the main
table of its report (`config.experiment.removal`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError
from workflow_src.evaluation.report import results
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.results import Results, read_results, results_path
from workflow_src.evaluation.report.tables import as_csv, settings_text
from workflow_src.evaluation.report.trained import TrainedSystem
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
    systems = {(system.system, system.seed): system for system in results.systems}
    provenance = results.provenance
    sums = (provenance.get("corpus") or {}).get("sha256") or {}
    # Figures of a program are comparable only under the same model, which its signature names.
    signed = [metric.title for metric in METRICS if metric is main_metric() or metric.program]
    experiment_cells = {
        "experiment": results.experiment,
        "corpus": results.dataset,
        "source": results.source,
        "target": results.target,
        "hardware": _hardware(provenance),
        "commit": provenance.get("commit") or "",
    }
    sets = [(results.split, provenance.get("signatures") or {}, results.rows)]
    sets += [(test_set.split, test_set.signatures, test_set.rows) for test_set in results.further]
    cells = []
    for split, signatures, rows in sets:
        digest = checksum({name: value for name, value in sums.items() if name.startswith(f"{split}.")})
        test_set = f"{split}:{digest[:12]}" if digest else split
        signature = "; ".join(signatures[title] for title in signed if title in signatures)
        test_set_cells = experiment_cells | {"test_set": test_set, "signature": signature}
        chosen = [row for row in rows if row.repetitions_removed == row.removal()]
        cells += [_cells(test_set_cells | _figures(row, systems.get((row.system, row.seed)))) for row in chosen]
    return cells


def _figures(row: results.Row, system: TrainedSystem | None) -> dict[str, Any]:
    scores: dict[str, str] = {}
    for metric in METRICS:
        low, high = row.interval(metric) or (None, None)
        ends = {"": row.figure(metric), "_low": low, "_high": high}
        scores |= {f"{metric.name}{end}": _fixed(value) for end, value in ends.items()}
    copied = ("system", "family", "preset", "search", "engine", "seed", "threads", "batch")
    return {
        **{name: getattr(row, name) for name in copied},
        "data": system.data if system else row.data,
        "settings": settings_text(row.settings),
        **scores,
        "latency_ms": _fixed(row.latency_ms),
        "sentences_per_second": _fixed(row.sentences_per_second),
        **{name: getattr(system, name, None) for name in ("parameters", "updates", "target_tokens")},
    }


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: "" if row.get(name) is None else str(row[name]) for name in COLUMNS}


def _fixed(value: float | None) -> str:
    return "" if value is None else f"{value:.{DIGITS}f}"


def _hardware(provenance: Mapping[str, Any]) -> str:
    """The machine that measured speed, or else the one that wrote the results."""
    timed = ((provenance.get("speed") or {}).get("provenance") or {}).get("hardware")
    hardware = timed or provenance.get("hardware") or {}
    cores = f"{hardware['cores']} cores" if hardware.get("cores") else None
    return ", ".join(filter(None, [hardware.get("accelerator"), hardware.get("processor"), cores]))


def read(path: str | Path) -> list[dict[str, str]]:
    """Rows of an experiment (`results.results_path`), or of a leaderboard's CSV file.

    Raises ArtifactError for anything else.
    """
    path = Path(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    return rows_of(read_results(results_path(path)))


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
    return as_csv(COLUMNS, rows)
