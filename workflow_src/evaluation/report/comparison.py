"""Comparison of experiments: one column each, means over seeds ± deviation, and the gap to their reference row."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable

from workflow_src.config.experiment import Removal
from workflow_src.errors import InputError
from workflow_src.evaluation.manifest import EngineKey
from workflow_src.evaluation.report import carried
from workflow_src.evaluation.report.conventions import removal_words
from workflow_src.evaluation.report.document import Document, GroupRow, Paragraph, Points, Section, Table
from workflow_src.evaluation.report.results import Results, Row, metrics_by_name
from workflow_src.registry import default_metrics, main_metric, searches
from workflow_src.spec import Metric, parse


@dataclasses.dataclass(frozen=True)
class Figure:
    """A compared figure: `value` is a function of a row and the main metric of its reference row, or None."""

    heading: str
    value: Callable[[Row, float | None], float | None]
    digits: int = 1


def figures(experiments: Iterable[Results]) -> list[Figure]:
    """The main metric and its gap, measured metrics that decide or have uncertainty, and speed."""
    main = main_metric()
    default_names = [metric.name for metric in default_metrics()]
    names = dict.fromkeys(name for results in experiments for name in results.metrics or default_names)
    other_metrics = [m for m in metrics_by_name(names) if m != main and (m.decides or m.uncertainty)]
    return [
        Figure(main.axis, lambda row, _: row.quality),
        Figure(
            f"{main.title} below the reference row",
            lambda row, level: None if level is None else level - row.quality,
        ),
        *map(_metric_figure, other_metrics),
        Figure("milliseconds a sentence, one at a time", lambda row, _: row.latency_ms, digits=2),
        Figure("speed-up over the reference row", lambda row, _: row.speedup, digits=2),
    ]


def _metric_figure(metric: Metric) -> Figure:
    def value(row: Row, _: float | None) -> float | None:
        figure = row.figure(metric)
        return None if figure is None else metric.factor * figure

    return Figure(metric.axis, value)


@dataclasses.dataclass(frozen=True)
class Cell:
    """Mean over seeds, deviation (n - 1; None for one seed), and number of seeds, `of` those of the experiment."""

    mean: float
    deviation: float | None
    seeds: int
    of: int

    def text(self, digits: int) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        fewer = f" ({self.seeds} of {self.of} seeds)" if self.seeds < self.of else ""
        return f"{self.mean:.{digits}f}{spread}{fewer}"


Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`cells[heading][row][column]` of figures by their headings; rows are (system, decode, data), columns the
    experiments, one for each of their test sets.

    `about` describes the data and seeds of each experiment; `systems` are lines of the table of systems, for each
    experiment and system with a row.
    """

    experiments: tuple[str, ...]
    datasets: tuple[str, ...]
    rows: tuple[Key, ...]
    figures: tuple[Figure, ...]
    cells: dict[str, dict[Key, list[Cell | None]]]
    about: tuple[str, ...] = ()
    systems: tuple[tuple[str, ...], ...] = ()
    # Whether non-autoregressive outputs mean repetitions: {True}, {False}, or both where some are.
    means_repetitions: frozenset[bool] = frozenset()


def row_key(row: Row) -> Key:
    """Key of a row: rows of two experiments with equal keys are compared."""
    if search := searches().get(row.search):
        label = search.row_label(parse(search.settings, row.settings, f"{row.system}: "))
    else:
        label = row.title or row.search
        label += f", {row.series} {row.value:g}" if row.series and row.value is not None else ""
        label += f", {row.candidates} candidates" if row.candidates else ""
    engine = EngineKey(row.engine)
    label += "" if engine.own else f", {engine.label}"
    # Experiments may choose different values of the same setting.
    label += f" (chosen: {', '.join(sorted(row.chosen)).replace('_', ' ')})" if row.chosen else ""
    return row.system, label, row.data


def _cell(values: list[float], seeds: int) -> Cell | None:
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Cell(statistics.fmean(values), deviation, len(values), seeds)


def compare(experiments: list[Results], removed: Removal | None = None) -> Comparison:
    """The comparison of rows of all experiments by `row_key`. `removed`: the removal of repetitions from
    non-autoregressive outputs; by default subwords, and none for outputs that mean repetitions.

    The gap is to the row of the same seed that the experiment's own report compares with. Rows with equal keys get
    their decode's name. Raises InputError without experiments, and for results without rows of this removal.
    """
    if not experiments:
        raise InputError("the list of experiments", "is empty", "give at least one")
    order: dict[Key, None] = {}
    by_experiment = []
    columns = [column for results in experiments for column in _by_test_set(results)]
    for results in columns:
        _check_removal(results, removed)
        chosen = [row for row in results.rows if row.autoregressive or row.repetitions_removed == row.removal(removed)]
        levels = {row.seed: row.quality for row in chosen if (row.system, row.name) == results.reference}
        rows: dict[Key, dict[int, Row]] = {}
        for row in chosen:
            system, label, data = row_key(row)
            twins = rows.get((system, label, data), {})
            if any(row_of_seed.name != row.name for row_of_seed in twins.values()):
                label += f" ({row.name})"
            rows.setdefault((system, label, data), {}).setdefault(row.seed, row)
        order |= dict.fromkeys(rows)
        by_experiment.append((rows, levels, len({row.seed for row in chosen})))
    table_figures = figures(experiments)
    cells: dict[str, dict[Key, list[Cell | None]]] = {
        figure.heading: {key: [] for key in order} for figure in table_figures
    }
    for figure in table_figures:
        for key in order:
            for rows, levels, seeds in by_experiment:
                values = [figure.value(row, levels.get(row.seed)) for row in rows.get(key, {}).values()]
                cells[figure.heading][key].append(_cell([value for value in values if value is not None], seeds))
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
    """The results of each test set of an experiment; where there are several, the split is in the experiment's name."""
    if not results.further:
        return [results]
    sets = [(results.split, results.rows), *((test_set.split, test_set.rows) for test_set in results.further)]
    updates = [{"experiment": f"{results.experiment}, {split}", "split": split, "rows": rows} for split, rows in sets]
    return [results.model_copy(update=update) for update in updates]


SYSTEM_HEADS = (
    *("experiment", "system", "family", "preset", "data", "seeds"),
    *("parameters", "updates", "target tokens seen", "minutes"),
)
# Number of its columns of words; figures follow.
SYSTEM_WORDS = 6


def _about(results: Results) -> str:
    """Data, checksum, seeds and reference row of an experiment, and a sentence where its networks were not trained
    equally long."""
    sums = (results.provenance.get("corpus") or {}).get("sha256")
    data = carried.data(results.dataset, sums, (row.seed for row in results.rows))
    unequal = carried.unequal(results.systems, {row.system for row in results.rows})
    reference = f"Reference row: {' '.join(results.reference)}." if results.reference else ""
    return " ".join(filter(None, [f"{results.experiment}:", data, reference, unequal]))


def _systems(results: Results) -> list[tuple[str, ...]]:
    """Cells of SYSTEM_HEADS for each system with rows, with the figures of its first seed."""
    lines = []
    for system in carried.first_seeds(results.systems, {row.system for row in results.rows}):
        seeds = ", ".join(str(s.seed) for s in results.systems if s.system == system.system)
        cells = system.cells() | {"experiment": results.experiment, "seeds": seeds}
        lines.append(tuple(str(cells.get(head, "–")) for head in SYSTEM_HEADS))
    return lines


def _check_removal(results: Results, removed: Removal | None) -> None:
    non_autoregressive = [row for row in results.rows if not row.autoregressive]
    variants = sorted({row.repetitions_removed for row in non_autoregressive})
    lacking = sorted({row.removal(removed) for row in non_autoregressive} - set(variants))
    if lacking:
        raise InputError(
            f"the results of {results.experiment}",
            f"have no rows with --remove-repetitions {lacking[0]}, only {', '.join(variants)}",
            "make its report again, or choose one of these",
        )


def tables(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """(heading, lines of cells as text) for every figure of at least one experiment."""
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


def document(comparison: Comparison, removed: Removal | None) -> Document:
    """The comparison: a section for each figure, whose rows are grouped by system and data, and the systems."""
    sections = []
    for heading, lines in tables(comparison):
        groups: dict[str, list[list[str]]] = {}
        for system, decode, data, *figures in lines:
            groups.setdefault(f"“{system}”, {data} data", []).append([decode, *figures])
        rows: list[GroupRow | list[str]] = []
        for title, members in groups.items():
            rows += [GroupRow(title), *members]
        heads = ["", *comparison.experiments]
        sections.append(Section(heading, [Table(heads, rows, look="main experiments", wide=True)]))
    if comparison.systems:
        table = Table(SYSTEM_HEADS, comparison.systems, left=SYSTEM_WORDS, look="plain systems", wide=True)
        sections.append(Section("Systems", [table]))
    return Document(
        title=", ".join(comparison.experiments),
        about=["Several experiments side by side"],
        summary=[Paragraph.of(caption(comparison, removed)), Points(comparison.about)],
        sections=sections,
    )


def caption(comparison: Comparison, removed: Removal | None) -> str:
    """The caption of the comparison: test sets, seeds, repetitions and speed."""
    named = [f"{name} on {data}" for name, data in zip(comparison.experiments, comparison.datasets, strict=True)]
    return (
        f"Test sets of {', '.join(named)}. Means over seeds ± deviation where there are several. In non-autoregressive "
        f"outputs, {removal_words(removed, comparison.means_repetitions)}. Speeds compare within a column, not between "
        "columns: "
        f"experiments may have run on different machines. {carried.SYSTEMS} Where a system has several seeds, its "
        "figures there are those of the first one."
    )
