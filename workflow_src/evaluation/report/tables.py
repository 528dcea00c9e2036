"""The main table: rows grouped by system, averaged over seeds; as Markdown, as CSV, and as cells for the page."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflow_src.config.experiment import REMOVALS, Convention, Removal
from workflow_src.config.manifest import DecodeInfo, Manifest, SystemInfo
from workflow_src.evaluation.quality.metrics import CONVENTIONS
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.markdown import group_row, markdown_table, signed
from workflow_src.evaluation.report.results import Row

CONVENTION_LABELS: dict[Convention, str] = {
    "sacrebleu": "sacreBLEU",
    "tokenised": "tokenised",
    "intl-lowercase": "international, lowercase",
}
REMOVAL_LABELS: dict[Removal, str] = {"none": "kept", "words": "removed by words", "subwords": "removed by subwords"}

ENERGIES = ("energy_per_sentence", "energy_per_token")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: figures are means over seeds, `spread` their deviations (n - 1), None for one seed."""

    decode: DecodeInfo
    label: str
    figures: dict[str, float | None]
    spread: dict[str, float] | None = None
    interval: tuple[float, float] | None = None
    latency_std: float | None = None
    p_value: float | None = None
    expected: float | None = None
    seeds: int = 1
    # The autoregressive line that `against_fastest` compares with.
    rival: Line | None = None
    # Lowest and highest median of a round in milliseconds; `latency_std` is over sentences.
    latency_rounds: tuple[float, float] | None = None

    @property
    def system(self) -> str:
        return self.decode.system.name

    @property
    def name(self) -> str:
        return self.decode.name


@dataclasses.dataclass(frozen=True)
class Group:
    """Lines that belong together: one system, or one model and what refines it, named by the system `head`."""

    title: str
    head: SystemInfo
    lines: tuple[Line, ...]

    @property
    def key(self) -> str:
        return self.head.name

    @property
    def autoregressive(self) -> bool:
        return self.head.autoregressive


def _expected(decode: DecodeInfo, first: dict[str, str], expected: dict[str, float]) -> float | None:
    """The published figure of a row: by `system/name`, or by `name` for the first group that has it."""
    exact = expected.get("/".join(decode.key))
    if exact is not None:
        return exact
    return expected.get(decode.name) if first.get(decode.name) == decode.system.name else None


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def _line(rows: list[Row], manifest: Manifest, expected: float | None) -> Line:
    first = rows[0]
    decode = manifest.decode(first.system, first.name)
    keys = ("bleu", "chrf", "validity", *ENERGIES, "latency_ms", "sentences_per_second", "speedup")
    # What stands beside a published figure is counted as that is.
    convention = CONVENTIONS[manifest.report.expected_convention]
    alike = None if expected is None else _mean(getattr(row, convention) for row in rows)
    others = {"against_fastest": None, "bleu_as_published": alike}
    spread = None
    if len(rows) > 1:
        spread = {
            key: statistics.stdev(getattr(row, key) for row in rows)
            for key in ("bleu", "chrf", "validity", *ENERGIES)
            if all(getattr(row, key) is not None for row in rows)
        }
    rounds = first.latency_rounds
    return Line(
        decode=decode,
        label=decode.label(first.mean_steps),
        figures={key: _mean(getattr(row, key) for row in rows) for key in keys} | others,
        spread=spread,
        interval=first.bleu_ci if len(rows) == 1 else None,
        latency_std=first.latency_std,
        latency_rounds=(min(rounds), max(rounds)) if rounds else None,
        p_value=first.p_value if len(rows) == 1 else None,
        expected=expected,
        seeds=len(rows),
    )


def _order(line: Line) -> tuple[bool, int, bool, float]:
    """Autoregressive lines stay as they are; others go by family, the group's own system first, then by the series of
    their search."""
    system, search = line.decode.system, line.decode.search
    value = 0 if system.autoregressive else line.decode.value or 0
    return system.name != system.group, system.order, search.borrows, value


def group_title(head: SystemInfo) -> str:
    return f"{head.title} “{head.name}”, {head.preset}, {head.data_kind} data"


def wanted_rows(rows: Iterable[Row], manifest: Manifest, removed: Removal | None) -> list[Row]:
    """Rows of one variant: autoregressive ones, and others from which `removed` was removed.

    None: of each decode the variant that stands for it (`config.experiment.removal`).
    """

    def wanted(row: Row) -> bool:
        decode = manifest.decode(row.system, row.name)
        return decode.system.autoregressive or row.repetitions_removed == decode.removal(removed)

    return [row for row in rows if wanted(row)]


def groups(
    rows: Iterable[Row], manifest: Manifest, removed: Removal | None, evidence: Evidence | None = None
) -> list[Group]:
    """The table of one variant. `removed`: which repetitions, from non-autoregressive rows; None: see `wanted_rows`.

    With `evidence` lines are compared with the fastest autoregressive one that is as good.

    Autoregressive groups come first, then each model with its refiners, by their families; within a group the order is
    that of the families, the model's own first, then of the search's series, then the experiment's.
    """
    by_line: dict[tuple[str, str], list[Row]] = {}
    first: dict[str, str] = {}
    for row in wanted_rows(rows, manifest, removed):
        by_line.setdefault((row.system, row.name), []).append(row)
        first.setdefault(row.name, row.system)
    collected: dict[str, list[Line]] = {}
    for key, seeds in by_line.items():
        decode = manifest.decode(*key)
        line = _line(seeds, manifest, _expected(decode, first, manifest.report.expected))
        collected.setdefault(decode.system.group, []).append(line)
    made = []
    for key, lines in collected.items():
        head = manifest.system(key)
        made.append(Group(group_title(head), head, tuple(sorted(lines, key=_order))))
    table = sorted(made, key=lambda group: (not group.autoregressive, group.head.order))
    return _against_the_fastest(table, evidence) if evidence and evidence.pairs else table


def _against_the_fastest(table: list[Group], evidence: Evidence) -> list[Group]:
    """The table with each line's speed-up, in median latency, over the fastest autoregressive line that is as good, on
    the same kind of engine. Lines without one have none, nor those of which nothing may be concluded."""
    peers = [
        line
        for group in table
        if group.autoregressive
        for line in group.lines
        if line.figures["latency_ms"] is not None
    ]

    def compared(line: Line) -> Line:
        latency, kind = line.figures["latency_ms"], line.decode.engine.kind
        if latency is None or evidence.lacking(line):
            return line
        rivals = [peer for peer in peers if peer.decode.engine.kind == kind and evidence.as_good(peer, line)]
        rival = min(rivals, key=lambda peer: peer.figures["latency_ms"], default=None)
        if rival is None or evidence.lacking(rival):
            return line
        gain = rival.figures["latency_ms"] / latency
        return dataclasses.replace(line, figures=line.figures | {"against_fastest": gain}, rival=rival)

    return [dataclasses.replace(group, lines=tuple(map(compared, group.lines))) for group in table]


def unmatched_expected(table: list[Group], expected: dict[str, float]) -> dict[str, float]:
    """Published figures that no line of the table shows."""
    shown = {key for group in table for line in group.lines for key in (line.name, f"{line.system}/{line.name}")}
    return {key: value for key, value in expected.items() if key not in shown}


def published_order(table: list[Group]) -> str:
    """How many pairs of rows stand in the order of their published figures, in a sentence; empty without such pairs.

    Ours are counted by the same convention. Kendall's tau is the pairs in that order less those in the opposite one,
    over all pairs whose published figures differ.
    """
    every = [(line.expected, line.figures["bleu_as_published"]) for group in table for line in group.lines]
    rows = [(published, ours) for published, ours in every if published is not None and ours is not None]
    signs = [
        (published - other) * (ours - others)
        for (published, ours), (other, others) in itertools.combinations(rows, 2)
        if published != other
    ]
    if not signs:
        return ""
    same, opposite = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    found = f"{same:,} stand in the published order (Kendall's τ {signed((same - opposite) / len(signs))})"
    return f"Of {len(signs):,} pairs of these {len(rows)} rows, {found}."


def removals(rows: Sequence[Row], manifest: Manifest) -> list[tuple[str, list[list[str]]]]:
    """What removing repetitions is worth: titles of non-autoregressive groups, and for each of their lines its label
    and BLEU ± deviation over seeds, in the order of REMOVALS."""
    bleu: dict[tuple[str, str], list[str]] = {}
    table: list[Group] = []
    for removal in REMOVALS:
        table = [group for group in groups(rows, manifest, removal) if not group.autoregressive]
        for line in (line for group in table for line in group.lines):
            spread = (line.spread or {}).get("bleu")
            text = f"{line.figures['bleu']:.1f}" + (f" ± {spread:.1f}" if spread is not None else "")
            bleu.setdefault((line.system, line.name), []).append(text)
    return [(group.title, [[line.label, *bleu[line.system, line.name]] for line in group.lines]) for group in table]


def columns(table: list[Group], convention: Convention = "sacrebleu") -> list[tuple[str, str]]:
    """(key, heading) of the columns that have at least one figure; BLEU and chrF are always there.

    Published figures are told with their `convention`; ours in the same one stand beside them, unless it is that of
    the column BLEU.
    """
    every = [
        ("bleu", "BLEU"),
        ("p_value", "p"),
        ("expected", f"published ({CONVENTION_LABELS[convention]})"),
        *([("bleu_as_published", "ours, same convention")] if convention != "sacrebleu" else []),
        ("chrf", "chrF"),
        ("validity", "valid, %"),
        ("energy_per_sentence", "energy, nats"),
        ("energy_per_token", "a token"),
        ("latency_ms", "ms / sentence, ± over sentences"),
        ("latency_rounds", "medians of rounds, ms"),
        ("sentences_per_second", "sentences / s"),
        ("speedup", "speed-up"),
        ("against_fastest", "over fastest as good"),
    ]
    lines = [line for group in table for line in group.lines]

    def there(key: str) -> bool:
        return any(_value(line, key) is not None for line in lines)

    return [(key, heading) for key, heading in every if key in ("bleu", "chrf") or there(key)]


def _value(line: Line, key: str) -> Any:
    return getattr(line, key) if key in ("expected", "p_value", "latency_rounds") else line.figures[key]


def cell(line: Line, key: str) -> tuple[str, str]:
    """A cell's figure and the small note beside it (interval or deviation); an en dash where nothing is known."""
    value = _value(line, key)
    if value is None:
        return "–", ""
    if key == "p_value":
        return p_digits(value), ""
    spread = (line.spread or {}).get(key)
    if key == "bleu":
        note = f"[{line.interval[0]:.1f}, {line.interval[1]:.1f}]" if line.interval else ""
        return f"{value:.1f}", f"± {spread:.1f}" if spread is not None else note
    if key == "validity":
        return f"{100 * value:.1f}", f"± {100 * spread:.1f}" if spread is not None else ""
    if key in ENERGIES:
        digits = 2 if key == "energy_per_token" else 1
        return f"{value:.{digits}f}", f"± {spread:.{digits}f}" if spread is not None else ""
    if key == "latency_ms":
        return _digits(value), f"± {_digits(line.latency_std)}" if line.latency_std is not None else ""
    if key == "latency_rounds":
        return span(value), ""
    if key == "sentences_per_second":
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}", ""
    if key in ("speedup", "against_fastest"):
        return f"{value:.2f}×" if value < 10 else f"{value:.1f}×", ""
    return f"{value:.1f}", f"± {spread:.1f}" if spread is not None else ""


def p_digits(value: float) -> str:
    """A p-value: small ones with the digits that Bonferroni's thresholds ask for."""
    return f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def span(values: Sequence[float]) -> str:
    """The lowest and the highest of some figures, or one where both read alike."""
    low, high = _digits(min(values)), _digits(max(values))
    return low if low == high else f"{low}–{high}"


def _digits(value: float) -> str:
    """Three digits at most after the first: 0.62, 12.4, 310."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def markdown(table: list[Group], convention: Convention = "sacrebleu") -> str:
    """The table in Markdown, groups as bold lines; `convention` is that of published figures."""
    shown = columns(table, convention)
    heads = ["", *(heading for _, heading in shown)]
    rows = []
    for group in table:
        rows.append(group_row(group.title, heads))
        for line in group.lines:
            rows.append([line.label, *(" ".join(filter(None, cell(line, key))) for key, _ in shown)])
    return markdown_table(heads, rows) + "\n"


def csv_text(rows: Iterable[Row]) -> str:
    """All rows, one a line, keys as in results.json; the interval in two columns, the settings, what was chosen and the
    rounds in one each, null as nothing."""
    flat = []
    for row in rows:
        low, high = row.bleu_ci or (None, None)
        settings, chosen = (settings_text(told or {}) or None for told in (row.settings, row.chosen))
        rounds = " ".join(map(str, row.latency_rounds or ())) or None
        plain = row.model_dump(mode="json", exclude={"bleu_ci"}) | {"settings": settings, "chosen": chosen}
        flat.append(plain | {"latency_rounds": rounds, "bleu_low": low, "bleu_high": high})
    return as_csv(list(flat[0]), flat) if flat else ""


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows by column as the text of a CSV file with a line of heads."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def settings_text(settings: Mapping[str, bool | float | str | None]) -> str:
    """Settings in a cell of a CSV file: `name=value` with blanks between, without those that are null."""
    return " ".join(f"{name}={_short(value)}" for name, value in settings.items() if value is not None)


def _short(value: bool | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
