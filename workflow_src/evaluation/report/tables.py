"""The main table: rows grouped by system, averaged over seeds; as Markdown, as CSV, and as cells for the page."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Sequence
from typing import Any

from workflow_src.config.experiment import REMOVALS, Convention, Removal
from workflow_src.evaluation.quality.metrics import CONVENTIONS
from workflow_src.evaluation.report.results import AUTOREGRESSIVE

FAMILY_ORDER = ("transformer", "lvm", "score", "energy")
SEARCH_LABELS = {
    "greedy": "greedy",
    "beam": "beam",
    "prior-mean": "prior mean",
    "delta": "delta",
    "score": "score",
    "energy": "energy",
    "latent-search": "latent search",
}
ENGINE_LABELS = {"ctranslate2": "CTranslate2", "onnxruntime": "ONNX Runtime"}
CONVENTION_LABELS: dict[Convention, str] = {
    "sacrebleu": "sacreBLEU",
    "tokenised": "tokenised",
    "intl-lowercase": "international, lowercase",
}
REMOVAL_LABELS: dict[Removal, str] = {"none": "kept", "words": "removed by words", "subwords": "removed by subwords"}


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: figures are means over seeds, `spread` their deviations (n - 1), None for one seed."""

    system: str
    name: str
    label: str
    search: str
    steps: int | None
    figures: dict[str, float | None]
    spread: dict[str, float] | None
    interval: tuple[float, float] | None
    latency_std: float | None
    p_value: float | None
    expected: float | None
    seeds: int
    engine: str = "continuum"
    # The autoregressive line that `against_fastest` compares with.
    rival: str = ""
    # Lowest and highest median of a round in milliseconds; `latency_std` is over sentences.
    latency_rounds: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """Lines that belong together: one autoregressive system, or one latent-variable model and what refines it."""

    title: str
    key: str
    autoregressive: bool
    lines: tuple[Line, ...]


def engine_label(engine: str) -> str:
    """An engine in words: `ctranslate2-int8` is CTranslate2 int8."""
    library, _, compute_type = engine.partition("-")
    return f"{ENGINE_LABELS.get(library, library)} {compute_type}".strip()


def row_label(row: dict[str, Any], manifest: dict[str, Any]) -> str:
    """What a row is called in tables: the search with its beam or steps, then what the decode's name adds."""
    label = SEARCH_LABELS.get(row["search"], row["search"])
    if row["search"] == "beam":
        label += f" {row['beam']}"
    elif row["search"] == "latent-search":
        label = _searched(row, manifest)
    elif row["search"] not in ("greedy", "prior-mean"):
        label += f", L = {row['steps']}"
    plain = {"beam": f"beam-{row.get('beam')}", "greedy": "greedy", "prior-mean": "prior-mean"}.get(
        row["search"], f"{row['search']}-{row.get('steps')}"
    )
    engine = row.get("engine", "continuum")
    if engine != "continuum":
        label += f", {engine_label(engine)}"
        plain += f"-{engine}"
    if row["search"] != "latent-search" and row["name"] != plain:
        used = f"; {row['mean_steps']:.1f} steps used" if row.get("mean_steps") is not None else ""
        label += f" ({_chosen(row, manifest) or row['name']}{used})"
    # Two score networks on one model share labels otherwise.
    base = manifest["systems"][row["system"]].get("base")
    twins = [
        name
        for name, system in manifest["systems"].items()
        if base and system.get("base") == base and system["family"] == manifest["systems"][row["system"]]["family"]
    ]
    return label if len(twins) < 2 else f"{label} ({row['system']})"


def _entries(row: dict[str, Any], manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifest's entries of a row's decode, one a seed and split."""
    of = (row["system"], row["name"])
    return [entry for entry in manifest.get("rows", ()) if (entry["system"], entry["name"]) == of]


def _picked(row: dict[str, Any], manifest: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The settings that dev chose for a row (none: empty), and whether all its seeds have the same."""
    picked = [entry["picked"] for entry in _entries(row, manifest) if "picked" in entry]
    return (picked[0], all(values == picked[0] for values in picked)) if picked else ({}, True)


def _chosen(row: dict[str, Any], manifest: dict[str, Any]) -> str:
    """What dev chose for a row, as `chosen: length quantile 0.6`; empty for rows that chose nothing."""
    picked, alike = _picked(row, manifest)
    told = [name.replace("_", " ") + (f" {value:g}" if alike else "") for name, value in picked.items()]
    return f"chosen: {', '.join(told)}" if told else ""


def _searched(row: dict[str, Any], manifest: dict[str, Any]) -> str:
    """What a row of latent search is called: its refinement, candidates and steps, and what ranks where it is told."""
    picked, alike = _picked(row, manifest)
    settings = _entries(row, manifest)[0]["settings"] | picked
    how = settings["refinement"] if settings["steps"] else "prior samples"
    label = f"{how}, search"
    # Seeds that chose different numbers share a row.
    label += f" {settings['lengths']:g} × {settings['samples']:g}" if alike else ""
    label += f", L = {settings['steps']}" if settings["steps"] else ""
    details = ["mean first"] if settings.get("mean_first") else []
    details += [] if settings.get("rescorer") else ["own score"]
    details += [_chosen(row, manifest)] if picked else []
    return label + (f" ({', '.join(details)})" if details else "")


def _expected(row: dict[str, Any], first: dict[str, str], expected: dict[str, float]) -> float | None:
    """The published figure of a row: by `system/name`, or by `name` for the first group that has it."""
    exact = expected.get(f"{row['system']}/{row['name']}")
    if exact is not None:
        return exact
    return expected.get(row["name"]) if first.get(row["name"]) == row["system"] else None


def _mean(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def _line(rows: list[dict[str, Any]], manifest: dict[str, Any], expected: float | None) -> Line:
    first = rows[0]
    keys = ("bleu", "chrf", "validity", "latency_ms", "sentences_per_second", "speedup")
    # What stands beside a published figure is counted as that is.
    convention = CONVENTIONS[manifest["report"]["expected_convention"]]
    alike = None if expected is None else _mean([row.get(convention) for row in rows])
    others = {"against_fastest": None, "bleu_as_published": alike}
    spread = None
    if len(rows) > 1:
        spread = {
            key: statistics.stdev(row[key] for row in rows)
            for key in ("bleu", "chrf", "validity")
            if all(row[key] is not None for row in rows)
        }
    return Line(
        system=first["system"],
        name=first["name"],
        label=row_label(first, manifest),
        search=first["search"],
        steps=first["steps"],
        figures={key: _mean([row[key] for row in rows]) for key in keys} | others,
        spread=spread,
        interval=tuple(first["bleu_ci"]) if len(rows) == 1 and first["bleu_ci"] else None,
        latency_std=first["latency_std"],
        latency_rounds=(min(rounds), max(rounds)) if (rounds := first.get("latency_rounds")) else None,
        p_value=first.get("p_value") if len(rows) == 1 else None,
        expected=expected,
        seeds=len(rows),
        engine=first.get("engine", "continuum"),
    )


def _order(line: Line, family: str) -> tuple[int, int]:
    place = FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER)
    return place, 10**6 if line.search == "latent-search" else line.steps or 0


def group_title(key: str, manifest: dict[str, Any]) -> str:
    system = manifest["systems"][key]
    kind = "Autoregressive Transformer" if system["family"] in AUTOREGRESSIVE else "Latent-variable model"
    data = "raw data" if system["data"] == "raw" else "distilled data"
    return f"{kind} “{key}”, {system['preset']}, {data}"


def groups(rows: list[dict[str, Any]], manifest: dict[str, Any], removed: Removal) -> list[Group]:
    """The table of one variant. `removed`: which repetitions, from non-autoregressive rows.

    Autoregressive groups come first, then each latent-variable model with its refiners; within a group the order is
    that of the families, then of the steps, then the experiment's.
    """
    wanted = [r for r in rows if r["family"] in AUTOREGRESSIVE or r["repetitions_removed"] == removed]
    by_line: dict[tuple[str, str], list[dict[str, Any]]] = {}
    first: dict[str, str] = {}
    for row in wanted:
        by_line.setdefault((row["system"], row["name"]), []).append(row)
        first.setdefault(row["name"], row["system"])
    collected: dict[str, list[Line]] = {}
    for (system, _), seeds in by_line.items():
        key = manifest["systems"][system].get("base") or system
        line = _line(seeds, manifest, _expected(seeds[0], first, manifest["report"]["expected"]))
        collected.setdefault(key, []).append(line)
    made = []
    for key, lines in collected.items():
        families = {line.system: manifest["systems"][line.system]["family"] for line in lines}
        lines = sorted(lines, key=lambda line: _order(line, families[line.system]))
        autoregressive = manifest["systems"][key]["family"] in AUTOREGRESSIVE
        made.append(Group(group_title(key, manifest), key, autoregressive, tuple(lines)))
    return _against_the_fastest(sorted(made, key=lambda group: not group.autoregressive))


def _against_the_fastest(table: list[Group]) -> list[Group]:
    """The table with each line's speed-up over the fastest autoregressive line of at least the same BLEU.

    Both figures are those of the table: median latency, and BLEU as the variant counts it. A line that no
    autoregressive line is as good as has none.
    """
    peers = [
        (line.figures["latency_ms"], line.figures["bleu"], f"{line.system}, {line.label}")
        for group in table
        if group.autoregressive
        for line in group.lines
        if line.figures["latency_ms"] is not None
    ]

    def compared(line: Line) -> Line:
        latency, bleu = line.figures["latency_ms"], line.figures["bleu"]
        rivals = [(ms, name) for ms, quality, name in peers if quality >= bleu]
        if latency is None or not rivals:
            return line
        fastest, rival = min(rivals)
        return dataclasses.replace(line, figures=line.figures | {"against_fastest": fastest / latency}, rival=rival)

    return [dataclasses.replace(group, lines=tuple(map(compared, group.lines))) for group in table]


def unmatched_expected(table: list[Group], expected: dict[str, float]) -> dict[str, float]:
    """Published figures that no line of the table shows."""
    shown = {key for group in table for line in group.lines for key in (line.name, f"{line.system}/{line.name}")}
    return {key: value for key, value in expected.items() if key not in shown}


def removals(rows: list[dict[str, Any]], manifest: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """What removing repetitions is worth: titles of non-autoregressive groups, and for each of their lines its label
    and BLEU ± deviation over seeds, in the order of REMOVALS."""
    bleu: dict[tuple[str, str], list[str]] = {}
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
    heads = columns(table, convention)
    lines = ["| | " + " | ".join(heading for _, heading in heads) + " |", "|---|" + "---:|" * len(heads)]
    for group in table:
        lines.append(f"| **{group.title}** |" + " |" * len(heads))
        for line in group.lines:
            cells = [" ".join(filter(None, cell(line, key))) for key, _ in heads]
            lines.append(f"| {line.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def csv_text(rows: list[dict[str, Any]]) -> str:
    """All rows, one a line, keys as in results.json; the interval in two columns, what was chosen and the rounds in
    one each, null as nothing."""
    flat = []
    for row in rows:
        low, high = row["bleu_ci"] or (None, None)
        chosen = " ".join(f"{name}={value:g}" for name, value in (row.get("chosen") or {}).items()) or None
        rounds = " ".join(map(str, row.get("latency_rounds") or ())) or None
        plain = {key: value for key, value in row.items() if key != "bleu_ci"} | {"chosen": chosen}
        flat.append(plain | {"latency_rounds": rounds, "bleu_low": low, "bleu_high": high})
    file = io.StringIO()
    if flat:
        writer = csv.DictWriter(file, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    return file.getvalue()
