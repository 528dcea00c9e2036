"""Tables of the leaderboard for pages: means over seeds, the best systems of every kind, and the best for each need."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import shlex
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import yaml

from workflow_src.config.texts import RAW, base_of
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.manifest import EngineKey, changed, common_label, words
from workflow_src.evaluation.report.leaderboard import RUN, Row
from workflow_src.evaluation.report.markdown import Formatted, plain
from workflow_src.evaluation.report.needs import carried_roles
from workflow_src.registry import engines, families, main_metric, named_systems, refinement, searches
from workflow_src.serving.folders import placement
from workflow_src.serving.recommended import option_words
from workflow_src.spec import Search, SearchSettings, parse

# Rows whose quality is within this of the best of their kind count as equally good: the fastest is shown.
LEVEL = 0.3
MOST_ROWS = 15
MARK = re.compile(
    r"<!-- leaderboard: (?P<table>\S+) (?P<about>\S+)(?: without (?P<without>[^>]+))? -->\n"
    r"(?P<content>.*?)(?=<!-- /leaderboard -->)",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """The rows of one system and decode, one for each seed: means over seeds.

    `quality` is the main metric, `spread` its deviation (n - 1), None for one seed. The run has `seeds`.
    """

    rows: tuple[Row, ...]
    seeds: int
    quality: float
    spread: float | None
    latency_ms: float | None
    sentences_per_second: float | None

    @property
    def row(self) -> Row:
        """The row of the first seed; rows differ in their figures and in what dev chose."""
        return self.rows[0]

    @property
    def autoregressive(self) -> bool:
        family = families().get(self.row["family"])
        return family is not None and family.autoregressive

    @functools.cached_property
    def search(self) -> Search | None:
        """The declaration of the search; None where it is not declared."""
        return searches().get(self.row["search"])

    @functools.cached_property
    def settings(self) -> SearchSettings | None:
        """The settings of the search; None where it is not declared, or has other settings."""
        return _parsed(self.search.settings, self.row["settings"]) if self.search else None

    @functools.cached_property
    def settings_of_seeds(self) -> list[SearchSettings]:
        """The settings of every seed; empty where the search is not declared, or has other settings."""
        if self.search is None:
            return []
        parsed = [_parsed(self.search.settings, row["settings"]) for row in self.rows]
        known = [settings for settings in parsed if settings is not None]
        return known if len(known) == len(parsed) else []

    @property
    def helpers(self) -> dict[str, str]:
        """Other systems of the search, by role."""
        return named_systems(self.settings) if self.settings else {}

    @property
    def kind(self) -> tuple[str, bool, tuple[str, ...]]:
        """Family, whether the search refines, and the roles of other systems."""
        return self.row["family"], self.refines, tuple(sorted(self.helpers))

    @property
    def refines(self) -> bool:
        if self.search is None:
            return False
        return self.search.refines or bool(self.settings and refinement(self.settings))

    @property
    def label(self) -> str:
        """Search and engine in words, without what seeds differ in."""
        settings = self.settings_of_seeds
        labels = [self.search.row_label(one) for one in settings] if self.search else []
        label = common_label(labels) if labels else self.row["search"]
        engine = EngineKey(self.row["engine"])
        return label if engine.own else f"{label}, {engine.label}"

    @property
    def changed(self) -> str:
        """Settings that are neither the default ones nor in the label, in words; names alone where seeds differ."""
        if not self.search or not self.settings_of_seeds:
            return self.row["settings"]
        of_seeds = [changed(self.search, settings) for settings in self.settings_of_seeds]
        names = dict.fromkeys(name for of_seed in of_seeds for name in of_seed)
        alike = [name for name in names if all(of_seed.get(name) == of_seeds[0].get(name) for of_seed in of_seeds)]
        parts = (words({name: of_seeds[0].get(name)}, values=name in alike) for name in names)
        return ", ".join(parts)


def _parsed(kind: type[SearchSettings], text: str) -> SearchSettings | None:
    try:
        return parse(kind, _values(text))
    except ValueError:
        return None


def _values(text: str) -> dict[str, Any]:
    pairs = (part.partition("=") for part in text.split())
    return {name: yaml.safe_load(value) for name, _, value in pairs}


def entries(rows: Iterable[Row]) -> list[Entry]:
    """One entry for each system and decode, on the main test set, whose rows come first in a run.

    Settings are chosen on dev for each seed, so rows of one decode may differ in tuned settings. Several decodes of a
    system that differ in these alone have the same order for every seed.
    """
    alike: dict[tuple, dict[str, list[Row]]] = {}
    main: dict[tuple, str] = {}
    seeds: dict[tuple, set[str]] = {}
    for row in rows:
        run = tuple(row[name] for name in RUN)
        if main.setdefault(run, row["test_set"]) != row["test_set"]:
            continue
        seeds.setdefault(run, set()).add(row["seed"])
        search = searches().get(row["search"])
        free = set(search.settings.named("tune")) if search else set()
        fixed = tuple(sorted((name, value) for name, value in _values(row["settings"]).items() if name not in free))
        key = tuple(row[name] for name in (*RUN, "system", "search", "engine", "threads"))
        alike.setdefault((*key, fixed), {}).setdefault(row["seed"], []).append(row)
    return [
        _entry(tuple(row for row in decode if row), len(seeds[key[: len(RUN)]]))
        for key, by_seed in alike.items()
        for decode in itertools.zip_longest(*by_seed.values())
    ]


def _entry(rows: tuple[Row, ...], seeds: int) -> Entry:
    def numbers(name: str) -> list[float]:
        return [float(row[name]) for row in rows if row[name]]

    def mean(name: str) -> float | None:
        values = numbers(name)
        return statistics.fmean(values) if values else None

    scores = numbers(main_metric().name)
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    return Entry(rows, seeds, statistics.fmean(scores), spread, mean("latency_ms"), mean("sentences_per_second"))


def _fastest(candidates: Iterable[Entry]) -> Entry | None:
    timed = [entry for entry in candidates if entry.latency_ms is not None]
    return min(timed, key=lambda entry: (entry.latency_ms, -entry.quality), default=None)


def best(candidates: Sequence[Entry]) -> Entry | None:
    """The fastest entry whose quality is within LEVEL of the highest; None without entries."""
    if not candidates:
        return None
    highest = max(candidates, key=lambda entry: entry.quality)
    return _fastest(entry for entry in candidates if entry.quality >= highest.quality - LEVEL) or highest


def entries_with(every: Iterable[Entry], column: str, value: str, without: Collection[str] = ()) -> list[Entry]:
    """Entries with a value in a column, without some experiments. Raises ArtifactError where there are none."""
    matching = [entry for entry in every if entry.row[column] == value and entry.row["experiment"] not in without]
    if not matching:
        raise ArtifactError("the leaderboard", f"has no rows of the {column} {value}", "name one that it has")
    return matching


def selection(candidates: Sequence[Entry]) -> list[Entry]:
    """At most MOST_ROWS entries of a corpus, unless it has more families; autoregressive ones first, then by quality.

    First the best entry of every family without other systems, and the fastest of the best autoregressive system; then
    those of `needs`; then the best of every other kind, by quality, as long as there is room.
    """
    kinds: dict[tuple, list[Entry]] = {}
    alone: dict[str, list[Entry]] = {}
    for entry in candidates:
        kinds.setdefault(entry.kind, []).append(entry)
        if not entry.helpers:
            alone.setdefault(entry.row["family"], []).append(entry)
    leading = [top for members in alone.values() if (top := best(members))]
    rival = max((entry for entry in leading if entry.autoregressive), key=lambda entry: entry.quality, default=None)
    if rival:
        columns = [*RUN, "system"]
        same_system = (entry for entry in candidates if all(entry.row[name] == rival.row[name] for name in columns))
        leading.append(_fastest(same_system) or rival)
    by_need = sorted((entry for _, entry in needs(candidates)), key=_by_quality)
    by_kind = sorted((top for members in kinds.values() if (top := best(members))), key=_by_quality)
    most = max(MOST_ROWS, len(alone))
    table = list({id(entry): entry for entry in (*leading, *by_need, *by_kind)}.values())[:most]
    return sorted(table, key=lambda entry: (not entry.autoregressive, -entry.quality))


def _by_quality(entry: Entry) -> float:
    return -entry.quality


def needs(candidates: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """Needs of readers, each with the entry of a corpus that serves it; needs without an entry are left out."""
    alone = [entry for entry in candidates if not entry.helpers]
    in_one_pass = [entry for entry in candidates if not entry.autoregressive and not entry.refines]
    with_model = [entry for entry in in_one_pass if any(role in carried_roles() for role in entry.helpers)]
    best_by_need = {
        "fastest": _fastest(candidates),
        "best on raw data without a language model": best([entry for entry in alone if _raw(entry)]),
        "best with a language model": best([entry for entry in with_model if set(entry.helpers) <= carried_roles()]),
        "best of all": best(candidates),
        "refinement of latents": best([entry for entry in alone if entry.refines]),
    }
    return [(need, entry) for need, entry in best_by_need.items() if entry]


def _raw(entry: Entry) -> bool:
    """Whether a system learns from raw text alone, augmented or not."""
    data = entry.row["data"]
    return base_of(data) == RAW and " " not in data


def command(entry: Entry) -> str:
    """Arguments of `continuum translate` in the experiment's folder of results; empty for an undeclared search."""
    search, settings, row = entry.search, entry.settings, entry.row
    if search is None or settings is None:
        return ""
    kind = type(settings)
    library, _, compute_type = row["engine"].partition("-")
    _, precision, mode = placement(library if compute_type else None, compute_type or None)
    exports = engines()[library].exports if library in engines() else None
    words = ["--bundle", f"{exports or 'bundles'}/{row['system']}/seed-{row['seed']}", "--search", row["search"]]
    roles = kind.roles()
    for name in kind.model_fields:
        value = getattr(settings, name)
        if value == kind.default(name) and name != search.series:
            continue
        if name in roles:
            role = roles[name]
            # A bundle may lack one that its searches cannot do without.
            if role not in carried_roles() or not search.needs[role].optional:
                words += [f"--{role}", f"bundles/{value}/seed-{row['seed']}"]
        else:
            words += option_words(name, value)
    words += ["--precision", precision] if exports and precision != "auto" else []
    words += ["--engine", mode] if mode not in ("auto", "eager") else []
    return shlex.join(words)


def _figure_cells(entry: Entry) -> list[str]:
    quality = f"{entry.quality:.1f}" + (f" ± {entry.spread:.1f}" if entry.spread is not None else "")
    if len(entry.rows) < entry.seeds:
        quality += f" ({len(entry.rows)} of {entry.seeds} seeds)"
    latency = "–" if entry.latency_ms is None else f"{entry.latency_ms:.2f}"
    throughput = "–" if entry.sentences_per_second is None else f"{entry.sentences_per_second:,.0f}"
    return [quality, latency, throughput]


def _data(entry: Entry) -> str:
    return entry.row["data"].removeprefix("distilled-")


def corpus_table(candidates: Sequence[Entry]) -> str:
    """The `selection` of a corpus with figures and commands, in Markdown."""
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
    heads = ["system (family)", "data", "search", "experiment", "command", main_metric().title, "ms", "sentences / s"]
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
    return _compact(["system", "data", "search", main_metric().title, "ms", "sentences / s"], lines, left=3)


def needs_table(candidates: Sequence[Entry]) -> str:
    """The system for each need, in Markdown."""
    lines = [
        [need, f"{entry.row['system']}: {entry.label}", entry.row["experiment"], *_figure_cells(entry)[:2]]
        for need, entry in needs(candidates)
    ]
    return _compact(["need", "system: search", "experiment", main_metric().title, "ms a sentence"], lines, left=3)


def _compact(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """A Markdown table without padding, because cells with commands are long, as mdformat writes compact tables."""
    cells = [heads, ["--"] * left + ["-:"] * (len(heads) - left), *(map(plain, line) for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# By the name in a page's mark: the column of the word after it, and the function that makes the table.
TABLES = {
    "rows": ("corpus", corpus_table),
    "needs": ("corpus", needs_table),
    "experiment": ("experiment", experiment_table),
}


def fill(page: str, entries: Sequence[Entry], place: str) -> str:
    """`page` with fresh tables between `<!-- leaderboard: TABLE ABOUT -->` and `<!-- /leaderboard -->`.

    TABLE is a key of TABLES; `without EXPERIMENT ...` after ABOUT leaves experiments out. Raises ArtifactError, which
    names the page as `place`, for a page without such marks, with an unpaired mark or with an unknown table.
    """

    def fresh(mark: re.Match) -> str:
        if mark["table"] not in TABLES:
            raise ArtifactError(place, f"asks for the table {mark['table']}", f"allowed: {', '.join(TABLES)}")
        column, table = TABLES[mark["table"]]
        entries_shown = entries_with(entries, column, mark["about"], (mark["without"] or "").split())
        start = mark[0][: mark.start("content") - mark.start()]
        return f"{start}\n{table(entries_shown)}\n\n"

    filled, tables = MARK.subn(fresh, page)
    if not tables or not tables == page.count("<!-- leaderboard:") == page.count("<!-- /leaderboard -->"):
        raise ArtifactError(
            place,
            "has no place for a table, or a mark without its pair",
            "write the lines <!-- leaderboard: rows CORPUS --> and <!-- /leaderboard --> there",
        )
    return filled
