"""Several experiments side by side: one column each, means over seeds ± deviation, and the gap to their own teacher."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from workflow_src.config.display import engine_info
from workflow_src.config.experiment import Removal
from workflow_src.errors import InputError
from workflow_src.evaluation.report import carried
from workflow_src.evaluation.report.conventions import removal_words
from workflow_src.evaluation.report.markdown import markdown_table, paragraph, plain
from workflow_src.evaluation.report.results import Results, Row, listed
from workflow_src.registry import default_metrics, main_metric, searches
from workflow_src.spec import Metric


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure that experiments are compared in: `of` a row and the main metric of its reference row, or None."""

    heading: str
    of: Callable[[Row, float | None], float | None]
    digits: int = 1


def figures(experiments: Iterable[Results]) -> list[Figure]:
    """The main metric and its gap, other metrics that decide or are tested and that some experiment measured, speed."""
    main = main_metric()
    names = dict.fromkeys(name for one in experiments for name in one.metrics or (m.name for m in default_metrics()))
    other_metrics = [metric for metric in listed(names) if metric != main and (metric.decides or metric.uncertainty)]
    return [
        Figure(main.axis, lambda row, _: row.quality),
        Figure(
            f"{main.title} below the teacher's beam search",
            lambda row, level: None if level is None else level - row.quality,
        ),
        *map(_metric_figure, other_metrics),
        Figure("milliseconds a sentence, one at a time", lambda row, _: row.latency_ms, digits=2),
        Figure("speed-up against the teacher's beam search", lambda row, _: row.speedup, digits=2),
    ]


def _metric_figure(metric: Metric) -> Figure:
    def value(row: Row, _: float | None) -> float | None:
        figure = row.figure(metric)
        return None if figure is None else metric.factor * figure

    return Figure(metric.axis, value)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Mean over seeds, deviation (n - 1; None for one seed), and how many seeds."""

    mean: float
    deviation: float | None
    seeds: int

    def text(self, digits: int) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`cells[heading][row][column]` of figures by their headings; rows are (system, decode, data), columns the
    experiments, one for each of their test sets.

    `about` says of each experiment on which data and seeds it is; `systems` are lines of text, one for each experiment
    and system that a row shows.
    """

    experiments: tuple[str, ...]
    datasets: tuple[str, ...]
    rows: tuple[Key, ...]
    figures: tuple[Figure, ...]
    cells: dict[str, dict[Key, list[Cell | None]]]
    about: tuple[str, ...] = ()
    systems: tuple[tuple[str, ...], ...] = ()
    # Whether outputs that are not autoregressive are read off alignments: all, none, or some of both.
    aligned: frozenset[bool] = frozenset()


def row_key(row: Row) -> Key:
    """Key of a row: rows of two experiments with equal keys are compared."""
    if search := searches().get(row.search):
        label = search.row_label(search.settings.checked(row.settings, f"{row.system}: "))
    else:
        label = row.title or row.search
        label += f", {row.series} {row.value:g}" if row.series and row.value is not None else ""
        label += f", {row.candidates} candidates" if row.candidates else ""
    engine = engine_info(row.engine)
    label += "" if engine.own else f", {engine.label}"
    # Experiments may choose different values of the same setting.
    label += f" (chosen: {', '.join(sorted(row.chosen)).replace('_', ' ')})" if row.chosen else ""
    return row.system, label, row.data


def _cell(values: list[float]) -> Cell | None:
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Cell(statistics.fmean(values), deviation, len(values))


def compare(experiments: list[Results], removed: Removal | None = None) -> Comparison:
    """Rows of all experiments by what they are. `removed`: which repetitions, from what is not autoregressive; by
    default subwords, and none from outputs that are read off alignments.

    The gap is to the teacher's beam-4 row of the same seed, of our own engine and without settings chosen on dev (the
    largest beam where there is none). Rows that would stand in one cell get their decode's name. Raises InputError for
    no experiments, and for one whose results hold its non-autoregressive outputs in other ways only.
    """
    if not experiments:
        raise InputError("the list of experiments", "is empty", "give at least one")
    order: dict[Key, None] = {}
    by_experiment = []
    columns = [column for results in experiments for column in _by_test_set(results)]
    for results in columns:
        _check_removal(results, removed)
        chosen = [row for row in results.rows if row.autoregressive or row.repetitions_removed == row.removal(removed)]
        levels: dict[int, float] = {}
        references = [(key, row) for row in chosen if (key := _preference(row)) is not None]
        for _, row in sorted(references, key=lambda pair: pair[0], reverse=True):
            levels.setdefault(row.seed, row.quality)
        rows: dict[Key, dict[int, Row]] = {}
        for row in chosen:
            system, label, data = row_key(row)
            twins = rows.get((system, label, data), {})
            if any(other.name != row.name for other in twins.values()):
                label += f" ({row.name})"
            rows.setdefault((system, label, data), {}).setdefault(row.seed, row)
        order |= dict.fromkeys(rows)
        by_experiment.append((rows, levels))
    table_figures = figures(experiments)
    cells: dict[str, dict[Key, list[Cell | None]]] = {
        figure.heading: {key: [] for key in order} for figure in table_figures
    }
    for figure in table_figures:
        for key in order:
            for rows, levels in by_experiment:
                values = [figure.of(row, levels.get(row.seed)) for row in rows.get(key, {}).values()]
                cells[figure.heading][key].append(_cell([value for value in values if value is not None]))
    return Comparison(
        tuple(results.experiment for results in columns),
        tuple(results.dataset for results in columns),
        tuple(order),
        tuple(table_figures),
        cells,
        tuple(map(_about, experiments)),
        tuple(line for results in experiments for line in _systems(results)),
        frozenset(row.removal() == "none" for results in experiments for row in results.rows if not row.autoregressive),
    )


def _by_test_set(results: Results) -> list[Results]:
    """The results of each test set of an experiment, whose names say which where there are several."""
    if not results.further:
        return [results]
    sets = [(results.split, results.rows), *((one.split, one.rows) for one in results.further)]
    named = [{"experiment": f"{results.experiment}, {split}", "split": split, "rows": rows} for split, rows in sets]
    return [results.model_copy(update=update) for update in named]


SYSTEM_HEADS = (
    *("experiment", "system", "family", "preset", "data", "seeds"),
    *("parameters", "updates", "target tokens seen", "minutes"),
)
# Columns of it that hold words; figures follow.
SYSTEM_WORDS = 6


def _about(results: Results) -> str:
    """Data, checksum and seeds of an experiment, and whether its networks were trained equally long."""
    sums = (results.provenance.get("corpus") or {}).get("sha256")
    data = carried.data(results.dataset, sums, (row.seed for row in results.rows))
    unequal = carried.unequal(results.systems, {row.system for row in results.rows})
    return f"{results.experiment}: {data} {unequal}".strip()


def _systems(results: Results) -> list[tuple[str, ...]]:
    """SYSTEM_HEADS of each system with rows; of several seeds, the first's figures."""
    lines = []
    for system in carried.first_seeds(results.systems, {row.system for row in results.rows}):
        seeds = ", ".join(str(other.seed) for other in results.systems if other.system == system.system)
        cells = system.cells() | {"experiment": results.experiment, "seeds": seeds}
        lines.append(tuple(str(cells.get(head, "–")) for head in SYSTEM_HEADS))
    return lines


def _check_removal(results: Results, removed: Removal | None) -> None:
    others = [row for row in results.rows if not row.autoregressive]
    variants = sorted({row.repetitions_removed for row in others})
    missing = sorted({row.removal(removed) for row in others} - set(variants))
    if missing:
        raise InputError(
            f"the results of {results.experiment}",
            f"have no rows with --remove-repetitions {missing[0]}, only {', '.join(variants)}",
            "make its report again, or choose one of these",
        )


def _preference(row: Row) -> tuple[Any, ...] | None:
    """The largest decides, and the first of equal ones: the teacher's own plain reference row where there is one.

    None for rows that others are not compared with.
    """
    search = searches().get(row.search)
    if search is None or search.reference is None:
        return None
    settings = search.settings.checked(row.settings, f"{row.system}: ")
    alone = not any(row.settings.get(name) for name in search.settings.named("role"))
    return row.system == "teacher", engine_info(row.engine).own, not row.chosen, alone, *search.reference(settings)


def tables(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """(heading, lines of cells as text) for every figure that some experiment has."""
    by_heading = []
    for figure in comparison.figures:
        lines = []
        for key in comparison.rows:
            row = comparison.cells[figure.heading][key]
            if any(row):
                lines.append([*key, *("–" if cell is None else cell.text(figure.digits) for cell in row)])
        if lines:
            by_heading.append((figure.heading, lines))
    return by_heading


def grouped(lines: list[list[str]]) -> list[tuple[str, list[list[str]]]]:
    """Lines of `tables` by system and data, for the page: title of the group, lines of decode and figures.

    On a page the names of systems and data would push the figures out of the frame.
    """
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for system, decode, data, *figures in lines:
        groups.setdefault((system, data), []).append([decode, *figures])
    return [(f"“{system}”, {data} data", members) for (system, data), members in groups.items()]


def markdown(comparison: Comparison, removed: Removal | None) -> str:
    """The comparison as Markdown."""
    parts = [f"# {plain(', '.join(comparison.experiments))}", paragraph(caption(comparison, removed))]
    parts.append("\n".join(f"- {paragraph(text)}" for text in comparison.about))
    heads = ["system", "decode", "data", *comparison.experiments]
    for heading, lines in tables(comparison):
        parts += [f"## {heading}", markdown_table(heads, lines, left=3)]
    if comparison.systems:
        parts += ["## Systems", markdown_table(SYSTEM_HEADS, comparison.systems, left=SYSTEM_WORDS)]
    return "\n\n".join(parts) + "\n"


def caption(comparison: Comparison, removed: Removal | None) -> str:
    """What the figures are."""
    named = [f"{name} on {data}" for name, data in zip(comparison.experiments, comparison.datasets, strict=True)]
    return (
        f"Test sets of {', '.join(named)}. Means over seeds ± deviation where there are several. In non-autoregressive "
        f"outputs, {removal_words(removed, comparison.aligned)}. Speeds compare within a column, not between columns: "
        f"experiments may have run on different machines. {carried.SYSTEMS}"
    )
