"""Tables of the leaderboard for pages: means over seeds, the best systems of every kind, and the best for each need."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pandas as pd

from workflow_src.config.roles import refinement
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.document import Cell, Table, table_of
from workflow_src.evaluation.labels import changed, common_label, words
from workflow_src.evaluation.manifest import EngineKey
from workflow_src.evaluation.report import markdown
from workflow_src.evaluation.report.leaderboard import BETWEEN_SIGNATURES, NUMBERS, ON_DEV, RUN, Row
from workflow_src.evaluation.report.needs import Candidate, carried_roles, close_to_best, deciding, helpers, served
from workflow_src.evaluation.report.results import Mean, means, without_release
from workflow_src.registry import default_engine, engines, families, main_metric, searches
from workflow_src.serving.options import option, option_words, place_words
from workflow_src.spec import SearchSettings, parse

# Rows whose quality is within this of the best of their kind count as equally good: the fastest is shown.
LEVEL = 0.3
MOST_ROWS = 15
MARK = re.compile(
    r"<!-- leaderboard: (?P<table>\S+) (?P<about>\S+)(?: without (?P<without>[^>]+))? -->\n"
    r"(?P<content>.*?)(?=<!-- /leaderboard -->)",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(Candidate):
    """The rows of one system and decode, one for each of the `seeds` of the run that has it, and their means by figure.

    `settings_of_seeds` is empty where the search is not declared, or has other settings; `settings` are those of the
    first seed.
    """

    rows: tuple[Row, ...]
    seeds: int
    means: Mapping[str, Mean]
    settings_of_seeds: list[SearchSettings]

    @classmethod
    def of(cls, rows: tuple[Row, ...], seeds: int, means: Mapping[str, Mean]) -> Entry:
        row, main = rows[0], main_metric()
        family, search = families().get(row["family"]), searches().get(row["search"])
        try:
            settings = [parse(search.settings, json.loads(row["settings"])) for row in rows] if search else []
        except ValueError:
            settings = []
        return cls(
            autoregressive=family is not None and family.autoregressive,
            search=search,
            settings=next(iter(settings), None),
            figures={main: means[main.name].value},
            on_dev={main: means[ON_DEV].value} if ON_DEV in means else {},
            latency_ms=means["latency_ms"].value if "latency_ms" in means else None,
            # Where the digest of the dev set is unknown, rows of a run share theirs.
            dev_set=row["dev_set"] or tuple(row[name] for name in RUN),
            machine=f"{row['hardware']}, {row['threads']} threads",
            rows=rows,
            seeds=seeds,
            means=means,
            settings_of_seeds=settings,
        )

    @property
    def quality(self) -> float:
        """The main metric."""
        return self.means[main_metric().name].value

    @property
    def row(self) -> Row:
        """The row of the first seed; rows differ in their figures and in what dev chose."""
        return self.rows[0]

    @property
    def main_signature(self) -> str:
        """How the main metric counts, such as its tokeniser."""
        return without_release(self.row["signature"].partition(BETWEEN_SIGNATURES)[0])

    @property
    def kind(self) -> tuple[str, bool, tuple[str, ...]]:
        """Family, whether the search refines, and the roles of other systems."""
        return self.row["family"], self.refines, tuple(sorted(helpers(self)))

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
        return EngineKey(self.row["engine"]).named(label)

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
        settings = json.loads(row["settings"])
        fixed = tuple(sorted((name, str(value)) for name, value in settings.items() if name not in free))
        key = tuple(row[name] for name in (*RUN, "system", "search", "engine", "threads"))
        alike.setdefault((*key, fixed), {}).setdefault(row["seed"], []).append(row)
    decodes = [
        (tuple(row for row in decode if row), len(seeds[key[: len(RUN)]]))
        for key, by_seed in alike.items()
        for decode in itertools.zip_longest(*by_seed.values())
    ]
    lines = [
        {"entry": number, "figure": name, "value": float(row[name])}
        for number, (of_seeds, _) in enumerate(decodes)
        for row in of_seeds
        for name in NUMBERS
        if row[name]
    ]
    by_entry = means(pd.DataFrame(lines).reindex(columns=["entry", "figure", "value", "low", "high", "p"]), ["entry"])
    return [Entry.of(of_seeds, count, by_entry[(number,)]) for number, (of_seeds, count) in enumerate(decodes)]


def best(candidates: Sequence[Entry]) -> Entry:
    """The fastest entry whose quality is within LEVEL of the highest."""
    return close_to_best(candidates, LEVEL)[1][0]


def entries_with(every: Iterable[Entry], column: str, value: str, without: Collection[str] = ()) -> list[Entry]:
    """Entries with a value in a column, without some experiments. Raises ArtifactError where there are none."""
    matching = [entry for entry in every if entry.row[column] == value and entry.row["experiment"] not in without]
    if not matching:
        raise ArtifactError("the leaderboard", f"has no rows of the {column} {value}", "name one that it has")
    return matching


def comparable(candidates: Sequence[Entry]) -> list[Entry]:
    """Those of the direction, test set and signature of the main metric that most entries have: figures of others do
    not compare with theirs."""
    keys = [
        (*(entry.row[name] for name in ("source", "target", "test_set")), entry.main_signature) for entry in candidates
    ]
    (most, _), *_ = collections.Counter(keys).most_common(1)
    return [entry for key, entry in zip(keys, candidates, strict=True) if key == most]


def selection(candidates: Sequence[Entry]) -> list[Entry]:
    """Entries of a corpus, autoregressive ones first, then by quality.

    The best entry of every family without other systems, the fastest of the best autoregressive system, and those of
    `needs`; where these are fewer than MOST_ROWS, also the best of other kinds, by quality.
    """
    kinds: dict[tuple, list[Entry]] = {}
    alone: dict[str, list[Entry]] = {}
    for entry in candidates:
        kinds.setdefault(entry.kind, []).append(entry)
        if not helpers(entry):
            alone.setdefault(entry.row["family"], []).append(entry)
    leading = [best(members) for members in alone.values()]
    rivals = [entry for entry in leading if entry.autoregressive]
    if rivals:
        rival, _ = close_to_best(rivals, 0)
        columns = [*RUN, "system"]
        same_system = [entry for entry in candidates if all(entry.row[name] == rival.row[name] for name in columns)]
        leading.append(close_to_best(same_system, math.inf)[1][0])
    leading = _distinct([*leading, *needs(candidates).values()])
    by_kind = sorted(deciding(map(best, kinds.values())), key=lambda pair: -pair[1][main_metric()])
    table = _distinct([*leading, *(entry for entry, _ in by_kind)])[: max(MOST_ROWS, len(leading))]
    return sorted(table, key=lambda entry: (not entry.autoregressive, -entry.quality))


def _distinct(listed: Iterable[Entry]) -> list[Entry]:
    return list({id(entry): entry for entry in listed}.values())


def needs(candidates: Sequence[Entry]) -> dict[str, Entry]:
    """Needs of readers, each with the entry of a corpus that serves it; needs without an entry are left out."""
    return served(candidates, LEVEL)


def command(entry: Entry, candidates: Iterable[Entry]) -> str:
    """Arguments of `continuum translate` in the experiment's folder of results; empty for an undeclared search.

    `candidates` has the other entries of its system, too: the bundle has the settings of one of them as defaults.
    """
    search, settings, row = entry.search, entry.settings, entry.row
    if search is None or settings is None:
        return ""
    kind = type(settings)
    library, _, compute_type = row["engine"].partition("-")
    exports = engines()[library].exports if library in engines() else None
    words = ["--bundle", f"{exports or 'bundles'}/{row['system']}/seed-{row['seed']}", "--search", row["search"]]
    roles, values = kind.roles(), settings.model_dump()
    bundle = [row[name] for name in (*RUN, "system", "search")]
    alike = [other for other in candidates if [other.row[name] for name in (*RUN, "system", "search")] == bundle]
    own = {
        name for other in alike if other.settings for name in values if getattr(other.settings, name) != values[name]
    }
    own |= {search.series} if search.series else set()
    for name, value in values.items():
        # Bundles may carry other systems than the row's, of some roles.
        by_default = roles[name] not in carried_roles() if name in roles else name not in own
        if value == kind.default(name) and (by_default or not kind.has_effect(name, values)):
            continue
        is_system = name in roles and value is not None
        words += [option(name), f"bundles/{value}/seed-{row['seed']}"] if is_system else option_words(name, value)
    # Where quality was measured with PyTorch, any engine serves.
    if library in engines() and library != default_engine().name:
        words += place_words(library, compute_type or None)
    return shlex.join(words)


def _table(entries: Iterable[Entry], words: Callable[[Entry], dict[str, str | Cell]]) -> Table:
    """A table of entries: the cells of `words`, and figures."""
    rows = [(words(entry), entry) for entry in entries]
    cells = [
        described
        | _figures(entry)
        | {"sentences / s": f"{rate.value:,.0f}" if (rate := entry.means.get("sentences_per_second")) else ""}
        for described, entry in rows
    ]
    return table_of(cells, [*rows[0][0]] if rows else ())


def _figures(entry: Entry) -> dict[str, str]:
    return {
        f"{main_metric().title} on dev": _mean(entry, ON_DEV),
        main_metric().title: _mean(entry, main_metric().name),
        "ms": "" if entry.latency_ms is None else f"{entry.latency_ms:.2f}",
    }


def _mean(entry: Entry, name: str) -> str:
    return entry.means[name].text(1, entry.seeds) if name in entry.means else ""


def _data(entry: Entry) -> str:
    return entry.row["data"].removeprefix("distilled-")


def corpus_table(candidates: Sequence[Entry]) -> Table:
    """The `selection` of a corpus with figures and commands."""
    return _table(
        selection(candidates),
        lambda entry: {
            "system (family)": f"{entry.row['system']} ({entry.row['family']})",
            "data": _data(entry),
            "search": entry.label,
            "experiment": entry.row["experiment"],
            "command": Cell(command(entry, candidates), code=True) if entry.settings else "",
        },
    )


def experiment_table(candidates: Sequence[Entry]) -> Table:
    """Every entry of an experiment, in the order of its rows."""
    return _table(
        candidates,
        lambda entry: {
            "system": entry.row["system"],
            "data": _data(entry),
            "search": entry.label + (f" ({entry.changed})" if entry.changed else ""),
        },
    )


def needs_table(candidates: Sequence[Entry]) -> Table:
    """The system for each need."""
    entries = [
        {
            "need": need,
            "system: search": f"{entry.row['system']}: {entry.label}",
            "experiment": entry.row["experiment"],
            **_figures(entry),
        }
        for need, entry in needs(candidates).items()
    ]
    return table_of(entries, ("need", "system: search", "experiment"))


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
        compared = comparable(entries_shown) if column == "corpus" else entries_shown
        others = len(entries_shown) - len(compared)
        kinds = f"directions, test sets or signatures of {main_metric().title}"
        note = f"Rows of other {kinds} that are left out: {others}.\n\n" if others else ""
        start = mark[0][: mark.start("content") - mark.start()]
        return f"{start}\n{markdown.table(table(compared), compact=True)}\n\n{note}"

    filled, tables = MARK.subn(fresh, page)
    if not tables or not tables == page.count("<!-- leaderboard:") == page.count("<!-- /leaderboard -->"):
        raise ArtifactError(
            place,
            "has no place for a table, or a mark without its pair",
            "write the lines <!-- leaderboard: rows CORPUS --> and <!-- /leaderboard --> there",
        )
    return filled
