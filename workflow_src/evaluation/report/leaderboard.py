"""The leaderboard: every measured row of many experiments as one CSV file, and the tables that pages show of it.

A row of the file is a system, decode and seed, in the variant of repetitions that stands for the decode in the main
table of its report (`config.experiment.removal`). Tables take means over seeds.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import math
import re
import shlex
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from workflow_src.config.display import changed, engine_info, search_info
from workflow_src.config.manifest import words
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.markdown import Formatted, plain
from workflow_src.evaluation.report.results import Results, read_results
from workflow_src.evaluation.report.tables import as_csv, settings_text
from workflow_src.evaluation.report.trained import TrainedSystem
from workflow_src.registry import engines, families, named_systems, refinement, searches
from workflow_src.serving.folders import placement
from workflow_src.serving.recommended import option_words
from workflow_src.spec import Search, SearchSettings

COLUMNS = tuple(
    "experiment corpus source target test_set system family preset data search settings engine seed bleu bleu_low "
    "bleu_high chrf latency_ms threads sentences_per_second batch parameters updates target_tokens hardware commit "
    "signature".split()
)
# What rows of one run have in common: rows that are read later take the place of all rows of another run.
RUN = ("experiment", "corpus", "source", "target")
NUMBERS = ("bleu", "bleu_low", "bleu_high", "chrf", "latency_ms", "sentences_per_second")
# Figures are rounded once more in tables: so many digits that this changes nothing there.
DIGITS = 4
# Of rows whose BLEU lies this close to the best of their kind, the fastest stands for the kind.
LEVEL = 0.3
MOST_ROWS = 15
MARK = re.compile(
    r"<!-- leaderboard: (?P<table>\S+) (?P<about>\S+)(?: without (?P<without>[^>]+))? -->\n"
    r"(?P<content>.*?)(?=<!-- /leaderboard -->)",
    re.DOTALL,
)
Row = Mapping[str, str]


def rows_of(results: Results) -> list[dict[str, str]]:
    """The rows of an experiment's results, by COLUMNS; what is not known is empty."""
    systems = {(system.system, system.seed): system for system in results.systems}
    provenance = results.provenance
    sums = (provenance.get("corpus") or {}).get("sha256") or {}
    digest = checksum({name: value for name, value in sums.items() if name.startswith(f"{results.split}.")})
    signature = (provenance.get("signatures") or {}).get("BLEU", "")
    about = {
        "experiment": results.experiment,
        "corpus": results.dataset,
        "source": results.source,
        "target": results.target,
        "test_set": f"{results.split}:{digest[:12]}" if digest else results.split,
        "hardware": _hardware(provenance),
        "commit": provenance.get("commit") or "",
        "signature": signature,
    }
    wanted = [row for row in results.rows if row.repetitions_removed == row.removal()]
    return [_cells(about | _figures(row, systems.get((row.system, row.seed)))) for row in wanted]


def _figures(row: Any, system: TrainedSystem | None) -> dict[str, Any]:
    low, high = row.bleu_ci or (None, None)
    alike = ("system", "family", "preset", "search", "engine", "seed", "threads", "batch")
    return {
        **{name: getattr(row, name) for name in alike},
        "data": system.data if system else row.data,
        "settings": settings_text(row.settings),
        "bleu": _fixed(row.bleu),
        "bleu_low": _fixed(low),
        "bleu_high": _fixed(high),
        "chrf": _fixed(row.chrf),
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
    """Rows of a results folder (`results/EXPERIMENT`), of a results.json, or of a leaderboard's CSV file.

    Raises ArtifactError for anything else.
    """
    path = Path(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.is_dir():
        path = path / "report" / "results.json"
    return rows_of(read_results(path))


def _read_csv(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, heads = list(reader), tuple(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise ArtifactError(path, f"cannot be read as a leaderboard: {failure}", "name another file") from failure
    if heads != COLUMNS:
        other = sorted(set(heads) ^ set(COLUMNS)) or ["their order"]
        raise ArtifactError(
            path,
            f"has other columns than a leaderboard ({', '.join(other)})",
            "name a CSV file that `continuum leaderboard` wrote",
        )
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ArtifactError(path, f"has not {len(COLUMNS)} cells", "mend the line", line=number)
        for name in NUMBERS:
            if not _is_number(row[name]) and (row[name] or name == "bleu"):
                raise ArtifactError(
                    path, f"has {row[name] or 'nothing'} as {name}", "write a number there", line=number
                )
    return rows


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def merge(parts: Iterable[Iterable[dict[str, str]]]) -> list[dict[str, str]]:
    """All rows in the order of their experiments; those of a run take the place of all rows of it in earlier parts."""
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for part in parts:
        read_now: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in part:
            read_now.setdefault(tuple(row[name] for name in RUN), []).append(row)
        runs |= read_now
    return [row for _, rows in sorted(runs.items()) for row in rows]


def csv_text(rows: Iterable[Row]) -> str:
    return as_csv(COLUMNS, rows)


@dataclasses.dataclass(frozen=True)
class Entry:
    """The rows of one system and decode: means over seeds, and the deviation of BLEU (n - 1), None for one seed."""

    row: Row
    bleu: float
    spread: float | None
    latency_ms: float | None
    sentences_per_second: float | None

    @property
    def autoregressive(self) -> bool:
        family = families().get(self.row["family"])
        return family is not None and family.autoregressive

    @functools.cached_property
    def search(self) -> Search | None:
        """The declaration of the search; None where nobody declares it."""
        return searches().get(self.row["search"])

    @functools.cached_property
    def settings(self) -> SearchSettings | None:
        """The settings of the search; None where nobody declares it, or with other settings."""
        return _parsed(self.search.settings, self.row["settings"]) if self.search else None

    @property
    def helpers(self) -> dict[str, str]:
        """Other systems that the search works with, by role."""
        return named_systems(self.settings) if self.settings else {}

    @property
    def kind(self) -> tuple[str, bool, tuple[str, ...]]:
        """Family, whether it refines anything, and the roles of other systems that it works with."""
        return self.row["family"], self.refines, tuple(sorted(self.helpers))

    @property
    def refines(self) -> bool:
        if self.search is None:
            return False
        return search_info(self.search).moves or bool(self.settings and refinement(self.settings))

    @property
    def label(self) -> str:
        """Search and engine in words."""
        label = self.search.row_label(self.settings) if self.search and self.settings else self.row["search"]
        engine = engine_info(self.row["engine"])
        return label if engine.own else f"{label}, {engine.label}"

    @property
    def changed(self) -> str:
        """Settings in words that are not the default ones, but for those that the label tells."""
        known = self.search and self.settings
        return words(changed(self.search, self.settings)) if known else self.row["settings"]


def _parsed(kind: type[SearchSettings], text: str) -> SearchSettings | None:
    try:
        return kind.checked(_values(text))
    except ValueError:
        return None


def _values(text: str) -> dict[str, Any]:
    pairs = (part.partition("=") for part in text.split())
    return {name: yaml.safe_load(value) for name, _, value in pairs}


def entries(rows: Iterable[Row]) -> list[Entry]:
    """One entry for each system and decode.

    Dev chooses settings for each seed, so rows of one decode may differ in settings that it can choose. Where several
    decodes of a system differ in these alone, they have the same order with every seed.
    """
    alike: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        search = searches().get(row["search"])
        free = set(search.settings.named("tune")) if search else set()
        fixed = tuple(sorted((name, value) for name, value in _values(row["settings"]).items() if name not in free))
        same = tuple(row[name] for name in (*RUN, "system", "search", "engine", "threads"))
        alike.setdefault((*same, fixed), {}).setdefault(row["seed"], []).append(row)
    return [
        _entry([row for row in decode if row])
        for seeds in alike.values()
        for decode in itertools.zip_longest(*seeds.values())
    ]


def _entry(seeds: Sequence[Row]) -> Entry:
    def numbers(name: str) -> list[float]:
        return [float(row[name]) for row in seeds if row[name]]

    def mean(name: str) -> float | None:
        values = numbers(name)
        return statistics.fmean(values) if values else None

    scores = numbers("bleu")
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    return Entry(seeds[0], statistics.fmean(scores), spread, mean("latency_ms"), mean("sentences_per_second"))


def _fastest(candidates: Iterable[Entry]) -> Entry | None:
    timed = [entry for entry in candidates if entry.latency_ms is not None]
    return min(timed, key=lambda entry: (entry.latency_ms, -entry.bleu), default=None)


def best(candidates: Sequence[Entry]) -> Entry | None:
    """The fastest of those whose BLEU is within LEVEL of the highest of them; None without any."""
    if not candidates:
        return None
    highest = max(candidates, key=lambda entry: entry.bleu)
    return _fastest(entry for entry in candidates if entry.bleu >= highest.bleu - LEVEL) or highest


def of(every: Iterable[Entry], column: str, value: str, without: Collection[str] = ()) -> list[Entry]:
    """The entries with a value in a column, but for some experiments. Raises ArtifactError where there are none."""
    matching = [one for one in every if one.row[column] == value and one.row["experiment"] not in without]
    if not matching:
        raise ArtifactError("the leaderboard", f"has no rows of the {column} {value}", "name one that it has")
    return matching


def selection(candidates: Sequence[Entry]) -> list[Entry]:
    """At most MOST_ROWS entries of a corpus, unless it has more families; autoregressive ones first, then by BLEU.

    Of every family the best that works without other systems, and the fastest of the best autoregressive system; then
    what readers need (`needs`), then the best of every other kind, as long as there is room, by BLEU.
    """
    kinds: dict[tuple, list[Entry]] = {}
    alone: dict[str, list[Entry]] = {}
    for entry in candidates:
        kinds.setdefault(entry.kind, []).append(entry)
        if not entry.helpers:
            alone.setdefault(entry.row["family"], []).append(entry)
    kept = [best(members) for members in alone.values()]
    rival = max((one for one in kept if one.autoregressive), key=lambda one: one.bleu, default=None)
    if rival:
        same = [*RUN, "system"]
        kept += [_fastest(one for one in candidates if all(one.row[name] == rival.row[name] for name in same)) or rival]
    wanted = sorted((entry for _, entry in needs(candidates)), key=_by_bleu)
    wanted += sorted((best(members) for members in kinds.values()), key=_by_bleu)
    most = max(MOST_ROWS, len(alone))
    table = list({id(entry): entry for entry in (*kept, *wanted)}.values())[:most]
    return sorted(table, key=lambda entry: (not entry.autoregressive, -entry.bleu))


def _by_bleu(entry: Entry) -> float:
    return -entry.bleu


def needs(candidates: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """What a reader may need of a corpus, and the entry that serves it; needs that no entry serves are left out."""
    alone = [entry for entry in candidates if not entry.helpers]
    in_one_pass = [entry for entry in candidates if not entry.autoregressive and not entry.refines]
    with_model = [entry for entry in in_one_pass if any(role in _carried() for role in entry.helpers)]
    wanted = {
        "fastest": _fastest(candidates),
        "best on raw data without a language model": best([entry for entry in alone if entry.row["data"] == "raw"]),
        "best with a language model": best([entry for entry in with_model if set(entry.helpers) <= _carried()]),
        "best of all": best(candidates),
        "refinement of latents": best([entry for entry in alone if entry.refines]),
    }
    return [(need, entry) for need, entry in wanted.items() if entry]


def _carried() -> set[str]:
    """Roles of systems that a bundle may carry, such as language models."""
    kinds = [search.settings for search in searches().values()]
    return {kind.option(name).role for kind in kinds for name in kind.named("carried")}


def command(entry: Entry) -> str:
    """Arguments of `continuum translate` in the experiment's folder of results; empty for an undeclared search."""
    settings, row = entry.settings, entry.row
    if settings is None:
        return ""
    kind = type(settings)
    library, _, compute_type = row["engine"].partition("-")
    asked = {"engine": library, "compute_type": compute_type} if compute_type else {}
    device, precision, mode = placement(asked)
    exports = engines()[library].exports if library in engines() else None
    words = ["--bundle", f"{exports or 'bundles'}/{row['system']}/seed-{row['seed']}", "--search", row["search"]]
    for name in kind.model_fields:
        value = getattr(settings, name)
        if value == kind.default(name) and name != entry.search.series:
            continue
        if name in kind.named("role"):
            if kind.option(name).role not in _carried():
                words += [f"--{kind.option(name).role}", f"bundles/{value}/seed-{row['seed']}"]
        else:
            words += option_words(name, value)
    words += ["--precision", precision] if exports and precision != "auto" else []
    words += ["--engine", mode] if mode not in ("auto", "eager") else []
    return shlex.join(words)


def _figure_cells(entry: Entry) -> list[str]:
    bleu = f"{entry.bleu:.1f}" + (f" ± {entry.spread:.1f}" if entry.spread is not None else "")
    latency = "–" if entry.latency_ms is None else f"{entry.latency_ms:.2f}"
    throughput = "–" if entry.sentences_per_second is None else f"{entry.sentences_per_second:,.0f}"
    return [bleu, latency, throughput]


def _data(entry: Entry) -> str:
    return entry.row["data"].removeprefix("distilled-")


def corpus_table(candidates: Sequence[Entry]) -> str:
    """What the systems of a corpus reach, in Markdown: `selection` with figures and commands."""
    lines = [
        [
            f"{entry.row['system']} ({entry.row['family']})",
            _data(entry),
            entry.label,
            entry.row["experiment"],
            Formatted(f"`{command(entry)}`" if entry.settings else "–"),
            *_figure_cells(entry),
        ]
        for entry in selection(candidates)
    ]
    heads = ["system (family)", "data", "search", "experiment", "command", "BLEU", "ms", "sentences / s"]
    return _compact(heads, lines, left=5)


def experiment_table(candidates: Sequence[Entry]) -> str:
    """Every entry of an experiment in Markdown, in the order of its rows."""
    lines = [
        [
            entry.row["system"],
            _data(entry),
            entry.label + (f" ({entry.changed})" if entry.changed else ""),
            *_figure_cells(entry),
        ]
        for entry in candidates
    ]
    return _compact(["system", "data", "search", "BLEU", "ms", "sentences / s"], lines, left=3)


def needs_table(candidates: Sequence[Entry]) -> str:
    """Which system to take for which need, in Markdown."""
    lines = [
        [need, f"{entry.row['system']}: {entry.label}", entry.row["experiment"], *_figure_cells(entry)[:2]]
        for need, entry in needs(candidates)
    ]
    return _compact(["need", "system: search", "experiment", "BLEU", "ms a sentence"], lines, left=3)


def _compact(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """A table without padding, because cells with commands are long; as mdformat has it with compact tables."""
    cells = [heads, ["--"] * left + ["-:"] * (len(heads) - left), *(map(plain, line) for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# By the name in a page's mark: the column that the word after it is a value of, and the table.
TABLES = {
    "rows": ("corpus", corpus_table),
    "needs": ("corpus", needs_table),
    "experiment": ("experiment", experiment_table),
}


def fill(page: str, every: Sequence[Entry], where: str) -> str:
    """`page` with fresh tables between `<!-- leaderboard: TABLE ABOUT -->` and `<!-- /leaderboard -->`.

    TABLE is a key of TABLES; `without EXPERIMENT ...` after ABOUT leaves experiments out. Raises ArtifactError, which
    names the page as `where`, for one without such marks, with a mark alone or with an unknown table.
    """

    def fresh(mark: re.Match) -> str:
        if mark["table"] not in TABLES:
            raise ArtifactError(where, f"asks for the table {mark['table']}", f"allowed: {', '.join(TABLES)}")
        column, table = TABLES[mark["table"]]
        entries_shown = of(every, column, mark["about"], (mark["without"] or "").split())
        start = mark[0][: mark.start("content") - mark.start()]
        return f"{start}\n{table(entries_shown)}\n\n"

    filled, tables = MARK.subn(fresh, page)
    if not tables or not tables == page.count("<!-- leaderboard:") == page.count("<!-- /leaderboard -->"):
        raise ArtifactError(
            where,
            "has no place for a table, or a mark without its pair",
            "write the lines <!-- leaderboard: rows CORPUS --> and <!-- /leaderboard --> there",
        )
    return filled
