"""The main table: rows grouped by system, averaged over seeds, as a block of a document."""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
from collections.abc import Mapping, Sequence

import pandas as pd

from workflow_src.config import texts
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.config.resolved import System
from workflow_src.evaluation.document import Caption, Cell, GroupRow, Table, table_of
from workflow_src.evaluation.manifest import Manifest, ShownDecode
from workflow_src.evaluation.report.captions import removal_words
from workflow_src.evaluation.report.evidence import Evidence, Group, Line
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.results import Mean, Results, means
from workflow_src.registry import figures_of_rows
from workflow_src.spec import Metric

REMOVAL_LABELS: dict[Removal, str] = {"none": "kept", "words": "removed by words", "subwords": "removed by subwords"}
WAYS = (
    "Repetitions kept; words that repeat the one before removed from the text; subwords that repeat the one before "
    "removed before they are joined to words."
)


def _expected(decode: ShownDecode, first_systems: dict[str, str], expected: dict[str, float]) -> float | None:
    """The published figure of a row: by `system/name`, or by `name` for the first group that has it."""
    exact = expected.get("/".join(decode.key))
    if exact is not None:
        return exact
    return expected.get(decode.name) if first_systems.get(decode.name) == decode.system.name else None


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


def groups(
    results: Results, split: str, manifest: Manifest, removed: Removal | None, evidence: Evidence | None = None
) -> list[Group]:
    """The groups of the table of a split (`Results.shown`).

    With `evidence` lines are compared with the fastest autoregressive one that is as good.

    Autoregressive groups come first, then each model with its refiners, by their families; lines are in `_order`.
    """
    by_line = means(results.shown(split, removed))
    rows = results.rows.groupby(["system", "decode"], sort=False)
    first_systems: dict[str, str] = {}
    collected: dict[str, list[Line]] = {}
    for (system, name), of_line in rows:
        if manifest.main.name not in by_line.get((system, name), {}):
            continue
        decode = manifest.decode(system, name)
        first_systems.setdefault(name, system)
        expected = _expected(decode, first_systems, manifest.report.expected)
        line = _line(by_line[system, name], of_line.iloc[0], decode, manifest, expected)
        collected.setdefault(decode.system.group, []).append(line)
    heads = [(manifest.plan.system(name), lines) for name, lines in collected.items()]
    all_groups = [Group(group_title(head), head, tuple(sorted(lines, key=_order))) for head, lines in heads]
    table = sorted(all_groups, key=lambda group: (not group.autoregressive, group.head.family.order))
    return _against_the_fastest(table, evidence) if evidence and evidence.pairs else table


def _line(
    figures: Mapping[str, Mean], row: pd.Series, decode: ShownDecode, manifest: Manifest, expected: float | None
) -> Line:
    """A line of `figures`; `row` is that of its first seed in rows.csv."""
    main, published = figures[manifest.main.name], figures.get(manifest.published.name)
    # Our figure beside a published one follows the same convention.
    further = {"as_published": published} if expected is not None and published else {}
    steps, timed = figures.get("mean_steps"), "latency_ms" in figures
    seeds = len({row.seed for row in manifest.rows})
    label = decode.label(steps.value if steps else None)
    return Line(
        decode=decode,
        label=label if main.seeds >= seeds else f"{label} ({main.seeds} of {seeds} seeds)",
        metrics=manifest.metrics,
        means={**figures, **further},
        expected=expected,
        seeds=main.seeds,
        latency_rounds=tuple(json.loads(row["latency_rounds"] or "[]")) if timed else (),
        disturbed_rounds=tuple(json.loads(row["disturbed_rounds"] or "[]")) if timed else (),
    )


def _against_the_fastest(table: list[Group], evidence: Evidence) -> list[Group]:
    """The table with each line's speed-up, in median latency, over the fastest autoregressive line that is as good, on
    the same kind of engine; where none is, over the best one, if the line is as good as that.

    There is none without such a rival, or where the evidence is inconclusive.
    """
    peers = [
        line
        for group in table
        if group.autoregressive
        for line in group.lines
        if line.figures["latency_ms"] is not None
    ]

    def compared(line: Line) -> Line:
        latency = line.figures["latency_ms"]
        of_kind = [peer for peer in peers if peer.decode.engine.kind == line.decode.engine.kind]
        if latency is None or evidence.too_bad(line) or not of_kind or evidence.why_unfit(of_kind):
            return line
        best = max(of_kind, key=lambda peer: peer.goodness)
        as_good = [peer for peer in of_kind if evidence.as_good(peer, line)]
        beaten = [best] if evidence.as_good(line, best) else []
        rival = min(as_good or beaten, key=lambda peer: peer.milliseconds, default=None)
        if rival is None:
            return line
        gain = rival.milliseconds / latency
        return dataclasses.replace(line, means={**line.means, "against_fastest": Mean(gain)}, rival=rival)

    return [dataclasses.replace(group, lines=tuple(map(compared, group.lines))) for group in table]


def unmatched_expected(table: Sequence[Group], expected: dict[str, float]) -> dict[str, float]:
    """Published figures that no line of the table shows."""
    names = {key for group in table for line in group.lines for key in (line.name, f"{line.system}/{line.name}")}
    return {key: value for key, value in expected.items() if key not in names}


def published_order(table: Sequence[Group]) -> str:
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
    return f"Pairs of rows in the published order: {same_order:,} of {len(signs):,} (Kendall's τ {tau})."


def removals(results: Results, split: str, manifest: Manifest) -> Table | None:
    """The main metric by way of removing repetitions, of every line that is not autoregressive, in the order of
    REMOVALS; None without such lines."""
    tables = [groups(results, split, manifest, removal) for removal in REMOVALS]
    cells: list[GroupRow | list[str]] = []
    for variants in zip(*tables, strict=True):
        if not variants[0].autoregressive:
            cells.append(GroupRow(variants[0].title))
            for lines in zip(*(group.lines for group in variants), strict=True):
                figures = [line.means[line.main.name].text(1, line.seeds) for line in lines]
                cells.append([lines[0].label, *figures])
    shown = removal_words(manifest.report.remove_repetitions, manifest.means_repetitions)
    line = f"{manifest.main.title} on {split}, by what is done about repetitions."
    caption = Caption(line, {"Columns": WAYS, "Main table": f"In the main table, {shown}."})
    return Table(["", *REMOVAL_LABELS.values()], cells, caption, numbered=True) if cells else None


def _is_best(line: Line, lines: Sequence[Line]) -> bool:
    """Whether a line has the best main figure of all lines, or of those without autoregression."""
    others = [other.goodness for other in lines if not (other.decode.autoregressive and not line.decode.autoregressive)]
    return line.goodness == max(others)


def _cells(line: Line, manifest: Manifest, best: bool, rounds: tuple[int, int]) -> dict[str, str | Cell]:
    """Cells of a line by the headings of their columns; `rounds` are their number and that of disturbed ones.

    Published figures are beside the main metric, with ours in the same convention unless that is the main metric's.
    """
    main = manifest.main
    cells = _metric_cells(line, main, manifest, best)
    cells[f"published ({manifest.convention.title})"] = _fixed(line.expected)
    if manifest.published is not main:
        cells["ours, same convention"] = _fixed(line.figures["as_published"])
    for metric in manifest.metrics:
        if metric is not main and not metric.convention:
            cells |= _metric_cells(line, metric, manifest)
    latency, deviation, rate = (line.figures[name] for name in ("latency_ms", "latency_std", "sentences_per_second"))
    return cells | {
        **{
            figure.column or figure.key: _figure(line, figure.key, figure.digits, figure.factor)
            for figure in figures_of_rows().values()
        },
        "ms / sentence, ± over sentences": ""
        if latency is None
        else Cell(digits(latency), "" if deviation is None else f"± {digits(deviation)}"),
        rounds_heading(*rounds): rounds_span(line.latency_rounds, line.disturbed_rounds) if line.latency_rounds else "",
        "sentences / s": "" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
        speedup_heading(manifest.reference): _times(line.figures["speedup"]),
        "over fastest as good": _times(line.figures["against_fastest"]),
    }


def _metric_cells(line: Line, metric: Metric, manifest: Manifest, best: bool = False) -> dict[str, str | Cell]:
    """The figure of a metric, with its interval or deviation, and its p-value."""
    cells = {manifest.head(metric): _figure(line, metric.name, 1, metric.factor, best)}
    p = line.p_values.get(metric.name)
    head = "p" if metric is manifest.main else f"p, {metric.head}"
    return cells | ({head: "" if p is None else p_digits(p)} if metric.uncertainty else {})


def speedup_heading(reference: ShownDecode | None) -> str:
    """The heading of speed-ups, which names the row that they refer to."""
    return f"speed-up over {row_words(reference)}" if reference else "speed-up"


def row_words(decode: ShownDecode) -> str:
    """A row in words: its system and its label."""
    return f"{decode.system.name}, {decode.label()}"


def _figure(line: Line, name: str, places: int, factor: float = 1.0, best: bool = False) -> str | Cell:
    """A figure of a line, with its interval or deviation, or else the number of seeds where some lack it."""
    mean = line.means.get(name)
    if mean is None:
        return ""
    note = ""
    if mean.seeds < line.seeds:
        note = f"{mean.seeds} of {line.seeds} seeds"
    elif mean.deviation is not None:
        note = f"± {factor * mean.deviation:.{places}f}"
    elif mean.low is not None and mean.high is not None:
        note = f"[{factor * mean.low:.{places}f}, {factor * mean.high:.{places}f}]"
    return Cell(f"{factor * mean.value:.{places}f}", note, strong=best)


def rounds_heading(rounds: int, disturbed: int) -> str:
    """The heading of medians of rounds, with the number of those that other load disturbed."""
    heading = "medians of rounds, ms"
    return f"{heading} (*: {disturbed} of {rounds} disturbed)" if disturbed else heading


def rounds_span(medians: Sequence[float], disturbed: Sequence[int]) -> str:
    """The lowest and the highest median of rounds; an asterisk marks those of disturbed rounds, numbers from 1."""
    numbered, by_median = list(enumerate(medians, 1)), operator.itemgetter(1)
    ends = [min(numbered, key=by_median), max(numbered, key=by_median)]
    texts = [digits(median) + "*" * (number in disturbed) for number, median in ends]
    return "–".join(dict.fromkeys(texts))


def _fixed(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def p_digits(value: float) -> str:
    """A p-value: small ones with the digits that Bonferroni's thresholds ask for."""
    return f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def digits(value: float) -> str:
    """A figure with about three digits: 0.62, 12.4, 310."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def block(table: Sequence[Group], manifest: Manifest, caption: Caption, numbered: bool = False) -> Table:
    """The table with its groups; the best figures of the main metric are bold."""
    lines = [line for group in table for line in group.lines]
    # All rows were timed in the same rounds.
    timed = next((line for line in lines if line.latency_rounds), None)
    rounds = (len(timed.latency_rounds), len(timed.disturbed_rounds)) if timed else (0, 0)
    numbers = itertools.count(1)
    entries: list[GroupRow | dict[str, str | Cell]] = []
    for group in table:
        entries.append(GroupRow(group.title))
        for line in group.lines:
            label = Cell(line.label, note=f"#{next(numbers)}" if numbered else "")
            entries.append({"": label, **_cells(line, manifest, _is_best(line, lines), rounds)})
    return table_of(entries, ("",), caption=caption, numbered=numbered, look="main", wide=True)
