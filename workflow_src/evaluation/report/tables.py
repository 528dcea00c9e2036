"""The main table: rows grouped by system, averaged over seeds; as a block of a document, and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workflow_src.config import texts
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.config.resolved import System
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.report.document import Caption, Cell, GroupRow, Table
from workflow_src.evaluation.report.document import Row as TableRow
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.results import Row
from workflow_src.registry import conventions
from workflow_src.spec import Metric

REMOVAL_LABELS: dict[Removal, str] = {"none": "kept", "words": "removed by words", "subwords": "removed by subwords"}

ENERGIES = ("energy_per_sentence", "energy_per_token")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: figures are means over seeds, `spread` their deviations (n - 1), None for one seed.

    `metrics` are those of its scores, the main one first. `intervals` and `p_values` are by metric, for one seed.
    """

    decode: ShownDecode
    label: str
    metrics: tuple[Metric, ...]
    figures: dict[str, float | None]
    spread: dict[str, float] | None = None
    intervals: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    latency_std: float | None = None
    p_values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    expected: float | None = None
    seeds: int = 1
    # Seeds with a figure, of figures that not all seeds have.
    fewer_seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The autoregressive line that `against_fastest` compares with.
    rival: Line | None = None
    # Median of each round in milliseconds, and the numbers, from 1, of disturbed ones; `latency_std` is over sentences.
    latency_rounds: tuple[float, ...] = ()
    disturbed_rounds: tuple[int, ...] = ()

    @property
    def system(self) -> str:
        return self.decode.system.name

    @property
    def name(self) -> str:
        return self.decode.name

    @property
    def main(self) -> Metric:
        return self.metrics[0]

    @property
    def quality(self) -> float:
        """The figure of the main metric."""
        value = self.figures[self.main.name]
        assert value is not None, "every row has a figure of the main metric"
        return value

    @property
    def milliseconds(self) -> float:
        """Median latency; the line must have been timed."""
        value = self.figures["latency_ms"]
        assert value is not None, "the line was timed"
        return value

    @property
    def goodness(self) -> float:
        """The figure of the main metric, with a sign such that higher is better."""
        return self.main.sign * self.quality

    @property
    def deciding(self) -> list[tuple[Metric, float]]:
        """The main metric and others that decide whether a line is as good as another one, with their figures."""
        deciding = [metric for metric in self.metrics if metric is self.main or metric.decides]
        return [(metric, value) for metric in deciding if (value := self.figures.get(metric.name)) is not None]


@dataclasses.dataclass(frozen=True)
class Group:
    """Lines of one system, or of one model and its refiners, named by the system `head`."""

    title: str
    head: System
    lines: tuple[Line, ...]

    @property
    def key(self) -> str:
        return self.head.name

    @property
    def autoregressive(self) -> bool:
        return self.head.family.autoregressive


def _expected(decode: ShownDecode, first_systems: dict[str, str], expected: dict[str, float]) -> float | None:
    """The published figure of a row: by `system/name`, or by `name` for the first group that has it."""
    exact = expected.get("/".join(decode.key))
    if exact is not None:
        return exact
    return expected.get(decode.name) if first_systems.get(decode.name) == decode.system.name else None


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _line(rows: list[Row], manifest: Manifest, expected: float | None) -> Line:
    first_row = rows[0]
    decode = manifest.decode(first_row.system, first_row.name)
    qualities = (*(metric.name for metric in manifest.metrics), *ENERGIES)
    keys = (*qualities, "latency_ms", "sentences_per_second", "speedup")
    # Our figure beside a published one follows the same convention.
    as_published = None if expected is None else _mean(row.figure(manifest.published) for row in rows)
    further_figures = {"against_fastest": None, "as_published": as_published}
    spread = None
    if len(rows) > 1:
        spread = {
            key: statistics.stdev(getattr(row, key) for row in rows)
            for key in qualities
            if all(getattr(row, key) is not None for row in rows)
        }
    seeds = len({row.seed for row in manifest.rows})
    label = decode.label(_mean(row.mean_steps for row in rows))
    counted = {key: sum(getattr(row, key) is not None for row in rows) for key in qualities}
    uncertain = [metric for metric in manifest.metrics if metric.uncertainty and len(rows) == 1]
    return Line(
        decode=decode,
        label=label if len(rows) >= seeds else f"{label} ({len(rows)} of {seeds} seeds)",
        metrics=manifest.metrics,
        figures={key: _mean(getattr(row, key) for row in rows) for key in keys} | further_figures,
        spread=spread,
        intervals={m.name: interval for m in uncertain if (interval := first_row.interval(m))},
        latency_std=first_row.latency_std,
        latency_rounds=first_row.latency_rounds or (),
        disturbed_rounds=first_row.disturbed_rounds or (),
        p_values={m.name: p for m in uncertain if (p := first_row.p_of(m)) is not None},
        expected=expected,
        seeds=len(rows),
        fewer_seeds={key: count for key, count in counted.items() if 0 < count < len(rows)},
    )


def _order(line: Line) -> tuple[bool, int, bool, float]:
    """A sorting key: autoregressive lines keep their order; others are sorted by family, the group's own system first,
    then by the series of their search."""
    system, search = line.decode.system, line.decode.search
    value = 0 if system.family.autoregressive else line.decode.value or 0
    return system.name != system.group, system.family.order, bool(search.settings.named("steps")), value


def group_title(head: System) -> str:
    kind = texts.kind_of(head.learnt_data)
    data = "" if kind == "none" else f", {kind} data"
    return f"{head.family.title} “{head.name}”, {head.preset}{data}"


def variant_rows(rows: Iterable[Row], manifest: Manifest, removed: Removal | None) -> list[Row]:
    """Autoregressive rows, and other rows of one variant, without the repetitions `removed`.

    None: the variant of each decode that tables show (`config.experiment.removal`).
    """

    def is_of_variant(row: Row) -> bool:
        decode = manifest.decode(row.system, row.name)
        return decode.system.family.autoregressive or row.repetitions_removed == decode.removal(removed)

    return [row for row in rows if is_of_variant(row)]


def groups(
    rows: Iterable[Row], manifest: Manifest, removed: Removal | None, evidence: Evidence | None = None
) -> list[Group]:
    """The groups of a table of `variant_rows`.

    With `evidence` lines are compared with the fastest autoregressive one that is as good.

    Autoregressive groups come first, then each model with its refiners, by their families; within a group the order is
    that of the families, the model's own first, then of the search's series, then the experiment's.
    """
    by_line: dict[tuple[str, str], list[Row]] = {}
    first_systems: dict[str, str] = {}
    for row in variant_rows(rows, manifest, removed):
        by_line.setdefault((row.system, row.name), []).append(row)
        first_systems.setdefault(row.name, row.system)
    collected: dict[str, list[Line]] = {}
    for key, seeds in by_line.items():
        decode = manifest.decode(*key)
        line = _line(seeds, manifest, _expected(decode, first_systems, manifest.report.expected))
        collected.setdefault(decode.system.group, []).append(line)
    heads = [(manifest.plan.system(name), lines) for name, lines in collected.items()]
    all_groups = [Group(group_title(head), head, tuple(sorted(lines, key=_order))) for head, lines in heads]
    table = sorted(all_groups, key=lambda group: (not group.autoregressive, group.head.family.order))
    return _against_the_fastest(table, evidence) if evidence and evidence.pairs else table


def _against_the_fastest(table: list[Group], evidence: Evidence) -> list[Group]:
    """The table with each line's speed-up, in median latency, over the fastest autoregressive line that is as good, on
    the same kind of engine. There is none without such a rival, or where the evidence is inconclusive."""
    peers = [
        line
        for group in table
        if group.autoregressive
        for line in group.lines
        if line.figures["latency_ms"] is not None
    ]

    def compared(line: Line) -> Line:
        latency, kind = line.figures["latency_ms"], line.decode.engine.kind
        if latency is None or evidence.why_inconclusive(line):
            return line
        rivals = [peer for peer in peers if peer.decode.engine.kind == kind and evidence.as_good(peer, line)]
        rival = min(rivals, key=lambda peer: peer.milliseconds, default=None)
        if rival is None or evidence.why_inconclusive(rival):
            return line
        gain = rival.milliseconds / latency
        return dataclasses.replace(line, figures=line.figures | {"against_fastest": gain}, rival=rival)

    return [dataclasses.replace(group, lines=tuple(map(compared, group.lines))) for group in table]


def unmatched_expected(table: list[Group], expected: dict[str, float]) -> dict[str, float]:
    """Published figures that no line of the table shows."""
    names = {key for group in table for line in group.lines for key in (line.name, f"{line.system}/{line.name}")}
    return {key: value for key, value in expected.items() if key not in names}


def published_order(table: list[Group]) -> str:
    """The number of pairs of rows in the order of their published figures, in a sentence; empty without such pairs.

    Our figures follow the same convention. Kendall's tau is the number of pairs in that order less that of pairs in the
    opposite order, over all pairs with different published figures.
    """
    figures = [(line.expected, line.figures["as_published"]) for group in table for line in group.lines]
    rows = [(published, ours) for published, ours in figures if published is not None and ours is not None]
    signs = [
        (published - other_published) * (ours - other_ours)
        for (published, ours), (other_published, other_ours) in itertools.combinations(rows, 2)
        if published != other_published
    ]
    if not signs:
        return ""
    same_order, opposite_order = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    tau = signed((same_order - opposite_order) / len(signs))
    return (
        f"Of {len(signs):,} pairs of these {len(rows)} rows, {same_order:,} stand in the published order (Kendall's τ "
        f"{tau})."
    )


def removals(rows: Sequence[Row], manifest: Manifest, caption: Caption) -> Table | None:
    """The main metric by way of removing repetitions: figures ± deviation over seeds of every line that is not
    autoregressive, in the order of REMOVALS; None without such lines."""
    quality: dict[tuple[str, str], list[str]] = {}
    table: list[Group] = []
    for removal in REMOVALS:
        table = [group for group in groups(rows, manifest, removal) if not group.autoregressive]
        for line in (line for group in table for line in group.lines):
            spread = (line.spread or {}).get(line.main.name)
            text = f"{line.quality:.1f}" + (f" ± {spread:.1f}" if spread is not None else "")
            quality.setdefault((line.system, line.name), []).append(text)
    cells: list[GroupRow | list[str]] = []
    for group in table:
        cells.append(GroupRow(group.title))
        cells += [[line.label, *quality[line.system, line.name]] for line in group.lines]
    return Table(["", *REMOVAL_LABELS.values()], cells, caption, numbered=True) if cells else None


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the main table. `cell` of a line is a figure and the small note beside it; None where it is empty.
    `kind` is a CSS class."""

    kind: str
    heading: str
    cell: Callable[[Line], tuple[str, str] | None]

    def cell_or_dash(self, line: Line) -> tuple[str, str]:
        """The cell of a line; an en dash where it is empty."""
        return self.cell(line) or ("–", "")


def best_lines(table: Sequence[Group]) -> set[tuple[str, str]]:
    """Keys of the lines with the best main figure, of all and of those without autoregression: bold in tables."""
    lines = [line for group in table for line in group.lines]
    others = [line for line in lines if not line.decode.system.family.autoregressive]
    best = [max((line.goodness for line in some), default=None) for some in (lines, others)]
    return {
        line.decode.key
        for line in lines
        if line.goodness == best[0] or (line.goodness == best[1] and not line.decode.system.family.autoregressive)
    }


def columns(table: Sequence[Group], manifest: Manifest) -> list[Column]:
    """Columns that have at least one figure.

    Published figures are beside the main metric, with ours in the same convention unless that is the main metric's.
    """
    main, published = manifest.main, manifest.published
    other_metrics = [metric for metric in manifest.metrics if metric is not main and not metric.convention]
    convention_title = published.convention.title if published.convention else published.title
    lines = [line for group in table for line in group.lines]
    # All rows were timed in the same rounds.
    timed = next((line for line in lines if line.latency_rounds), None)
    rounds = (len(timed.latency_rounds), len(timed.disturbed_rounds)) if timed else (0, 0)
    all_columns = [
        *_metric_columns(main, manifest),
        Column("expected", f"published ({convention_title})", lambda line: _fixed(line.expected)),
        *([_plain("as_published", "ours, same convention")] if published is not main else []),
        *itertools.chain.from_iterable(_metric_columns(metric, manifest) for metric in other_metrics),
        _with_spread("energy_per_sentence", "energy, nats"),
        _with_spread("energy_per_token", "a token", digits=2),
        Column("latency_ms", "ms / sentence, ± over sentences", _latency),
        Column("latency_rounds", rounds_heading(*rounds), _rounds),
        Column("sentences_per_second", "sentences / s", _throughput),
        Column("speedup", speedup_heading(manifest.reference), lambda line: _times(line.figures["speedup"])),
        Column("against_fastest", "over fastest as good", lambda line: _times(line.figures["against_fastest"])),
    ]
    return [column for column in all_columns if any(column.cell(line) for line in lines)]


def speedup_heading(reference: ShownDecode | None) -> str:
    """The heading of speed-ups, which names the row that they refer to."""
    return f"speed-up over {row_words(reference)}" if reference else "speed-up"


def row_words(decode: ShownDecode) -> str:
    """A row in words: its system and its label."""
    return f"{decode.system.name}, {decode.label()}"


def _metric_columns(metric: Metric, manifest: Manifest) -> list[Column]:
    """The figure of a metric, with its interval or deviation, and its p-value."""

    def cell(line: Line) -> tuple[str, str] | None:
        value = line.figures.get(metric.name)
        if value is None:
            return None
        interval, spread = line.intervals.get(metric.name), (line.spread or {}).get(metric.name)
        note = "" if interval is None else "[{:.1f}, {:.1f}]".format(*(metric.factor * end for end in interval))
        note = note if spread is None else f"± {metric.factor * spread:.1f}"
        return f"{metric.factor * value:.1f}", note or _fewer_seeds(line, metric.name)

    def p_value(line: Line) -> tuple[str, str] | None:
        value = line.p_values.get(metric.name)
        return None if value is None else (p_digits(value), "")

    kind, heading = metric.name.replace("+", "p"), manifest.head(metric)
    if not metric.uncertainty:
        return [Column(kind, heading, cell)]
    return [Column(kind, heading, cell), Column("p_value", "p", p_value)]


def _plain(key: str, heading: str) -> Column:
    return Column(key, heading, lambda line: _fixed(line.figures[key]))


def _with_spread(key: str, heading: str, digits: int = 1) -> Column:
    def cell(line: Line) -> tuple[str, str] | None:
        value, spread = line.figures[key], (line.spread or {}).get(key)
        if value is None:
            return None
        return f"{value:.{digits}f}", _fewer_seeds(line, key) if spread is None else f"± {spread:.{digits}f}"

    return Column(key, heading, cell)


def _fewer_seeds(line: Line, key: str) -> str:
    """A note on a mean over fewer seeds than those of its line."""
    return f"{line.fewer_seeds[key]} of {line.seeds} seeds" if key in line.fewer_seeds else ""


def rounds_heading(rounds: int, disturbed: int) -> str:
    """The heading of medians of rounds, with the number of those that other load disturbed."""
    heading = "medians of rounds, ms"
    return f"{heading} (*: {disturbed} of {rounds} disturbed)" if disturbed else heading


def _rounds(line: Line) -> tuple[str, str] | None:
    return (rounds_span(line.latency_rounds, line.disturbed_rounds), "") if line.latency_rounds else None


def rounds_span(medians: Sequence[float], disturbed: Sequence[int]) -> str:
    """The lowest and the highest median of rounds; an asterisk marks those of disturbed rounds, numbers from 1."""
    ends = [min(enumerate(medians, 1), key=_median), max(enumerate(medians, 1), key=_median)]
    texts = [_digits(median) + "*" * (number in disturbed) for number, median in ends]
    return "–".join(dict.fromkeys(texts))


def _median(numbered: tuple[int, float]) -> float:
    return numbered[1]


def _fixed(value: float | None) -> tuple[str, str] | None:
    return None if value is None else (f"{value:.1f}", "")


def _latency(line: Line) -> tuple[str, str] | None:
    value = line.figures["latency_ms"]
    if value is None:
        return None
    return _digits(value), "" if line.latency_std is None else f"± {_digits(line.latency_std)}"


def _throughput(line: Line) -> tuple[str, str] | None:
    value = line.figures["sentences_per_second"]
    return None if value is None else (f"{value:,.0f}" if value >= 10 else f"{value:.1f}", "")


def _times(value: float | None) -> tuple[str, str] | None:
    return None if value is None else (f"{value:.2f}×" if value < 10 else f"{value:.1f}×", "")


def p_digits(value: float) -> str:
    """A p-value: small ones with the digits that Bonferroni's thresholds ask for."""
    return f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def _digits(value: float) -> str:
    """A figure with about three digits: 0.62, 12.4, 310."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def block(table: Sequence[Group], manifest: Manifest, caption: Caption, numbered: bool = False) -> Table:
    """The table with its groups; the best lines are marked."""
    table_columns, best = columns(table, manifest), best_lines(table)
    rows: list[TableRow | GroupRow] = []
    for group in table:
        rows.append(GroupRow(group.title))
        for line in group.lines:
            cells = [
                Cell(*column.cell_or_dash(line), kind=column.kind if number else "main")
                for number, column in enumerate(table_columns)
            ]
            rows.append(TableRow((line.label, *cells), strong=line.decode.key in best))
    heads = ["", *(column.heading for column in table_columns)]
    return Table(heads, rows, caption, numbered, look="main", wide=True)


def csv_text(rows: Iterable[Row], further: Iterable[tuple[str, Iterable[Row]]] = (), split: str = "") -> str:
    """All rows as CSV, with the keys of results.json; with `further` test sets, the first column is the `split`.

    An interval has two columns; settings, chosen settings and rounds have one column each; null is empty.
    """
    flat = []
    sets = [(split, rows), *further]
    for name, row in ((name, row) for name, members in sets for row in members):
        cells = row.model_dump(mode="json")
        bounds = {
            name.removesuffix("_ci"): cells.pop(name) or (None, None) for name in [*cells] if name.endswith("_ci")
        }
        cells |= {name: settings_text(cells[name] or {}) or None for name in ("settings", "chosen")}
        for rounds in ("latency_rounds", "disturbed_rounds"):
            cells[rounds] = " ".join(map(str, cells[rounds] or ())) or None
        ends = {f"{name}_{end}": ends[i] for name, ends in bounds.items() for i, end in enumerate(("low", "high"))}
        flat.append(({"split": name} if len(sets) > 1 else {}) | cells | ends)
    return as_csv(_csv_columns(flat[0]), flat) if flat else ""


def _csv_columns(row: Mapping[str, Any]) -> list[str]:
    """Columns of table.csv: the row, the main metric by all conventions, its tests, other metrics, speed."""
    convention_names = [metric.name for metric in conventions().values() if metric.name in row]
    fields = [name for name in ("split", *Row.model_fields) if name in row]
    tests, speed = fields.index("p_value"), fields.index("energy_per_sentence")
    other_names = [name for name in row if name not in {*convention_names, *fields}]
    ends = [name for name in other_names if name.endswith(("_low", "_high"))]
    scores = [name for name in other_names if name not in ends]
    return [*fields[:tests], *convention_names, *fields[tests:speed], *scores, *fields[speed:], *ends]


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as the text of a CSV file with a line of headings."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def settings_text(settings: Mapping[str, bool | float | str | None]) -> str:
    """Settings in a cell of a CSV file: `name=value` separated by blanks, without null values."""
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items() if value is not None)


def _short(value: bool | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
