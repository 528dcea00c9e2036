"""Needs of users, which rows serve them, and the rule that a row serves one: the fastest of the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from workflow_src.config.roles import named_systems, refinement
from workflow_src.registry import searches
from workflow_src.spec import Metric, Search, SearchSettings

# The fastest row may lose so many points to the best one.
FASTEST = 2.0
FASTEST_NEED = f"fastest within {FASTEST:g} points of the best"


Figures = Mapping[Metric, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A row that may be chosen; its search and settings are None where they are not declared.

    `figures` and `on_dev` are by the metrics that decide, on a test set and on the dev set `dev_set`, as far as
    measured; `latency_ms` is None where it was not timed, and `machine` is the one that timed it.
    """

    autoregressive: bool
    search: Search | None
    settings: SearchSettings | None
    figures: Figures
    on_dev: Figures
    latency_ms: float | None
    # One experiment has one dev set, and one job times all its rows.
    dev_set: Hashable = ""
    machine: str = ""


Row = TypeVar("Row", bound=Candidate)


def carried_roles() -> set[str | None]:
    """Roles of systems that a bundle may carry, such as language models and drafters."""
    kinds = [search.settings for search in searches().values()]
    return {kind.option(name).role for kind in kinds for name in kind.named("carried")}


def helpers(row: Candidate) -> dict[str, str]:
    """Other systems of the search, by role."""
    return named_systems(row.settings) if row.settings else {}


def in_one_pass(row: Candidate) -> bool:
    """Whether a search neither writes word by word nor computes its output again from an earlier one."""
    if row.autoregressive or row.search is None or row.settings is None:
        return False
    value = getattr(row.settings, row.search.series) if row.search.series else None
    return not ((row.search.traceable and value != row.search.first_value) or refinement(row.settings))


def _with_language_model(row: Candidate) -> bool:
    """Whether other systems of the search are such as bundles carry, and none drafts its output."""
    drafted = row.search is not None and row.search.blocks
    return bool(helpers(row)) and set(helpers(row)) <= carried_roles() and not drafted


NEEDS: dict[str, Callable[[Candidate], bool]] = {
    FASTEST_NEED: lambda _: True,
    "one pass by itself": lambda row: in_one_pass(row) and not helpers(row),
    "one pass with a language model": lambda row: in_one_pass(row) and _with_language_model(row),
    "best of all": lambda _: True,
    "autoregressive search": lambda row: row.autoregressive and (not helpers(row) or _with_language_model(row)),
}


def deciding(candidates: Iterable[Row]) -> list[tuple[Row, Figures]]:
    """Candidates with the figures that decide between them: those on dev where all have some of one dev set, else those
    on test.

    Metrics that some candidate lacks decide nothing.
    """
    listed = list(candidates)
    on_dev = all(candidate.on_dev and candidate.dev_set == listed[0].dev_set for candidate in listed)
    of_all = [candidate.on_dev if on_dev else candidate.figures for candidate in listed]
    shared = [metric for metric in (of_all[0] if of_all else ()) if all(metric in figures for figures in of_all)]
    return [
        (candidate, {metric: figures[metric] for metric in shared})
        for candidate, figures in zip(listed, of_all, strict=True)
    ]


def close_to_best(candidates: Iterable[Row], margin: float) -> tuple[Row, list[Row]]:
    """The best candidate, and those within the margin of it in each of the figures that decide, the fastest first.

    Times of different machines do not compare: those that were timed on another one than the best of these are left
    out. The first of the metrics decides which one is the best. Of equally fast ones, and of those without a latency,
    the best comes first.
    """
    decided = deciding(candidates)

    def goodness(pair: tuple[Row, Figures]) -> list[float]:
        return [metric.sign * figure for metric, figure in pair[1].items()]

    def speed_and_goodness(pair: tuple[Row, Figures]) -> tuple[float, list[float]]:
        milliseconds = pair[0].latency_ms
        return -math.inf if milliseconds is None else -milliseconds, goodness(pair)

    best = max(decided, key=goodness)
    close = [
        (candidate, ours)
        for candidate, ours in decided
        if all(metric.factor * metric.sign * (figure - ours[metric]) <= margin for metric, figure in best[1].items())
    ]
    # The best that was timed says which machine's times count.
    timed = [pair for pair in close if pair[0].latency_ms is not None]
    machine = max(timed, key=goodness)[0].machine if timed else None
    close = [pair for pair in close if pair[0].latency_ms is None or pair[0].machine == machine]
    return best[0], [candidate for candidate, _ in sorted(close, key=speed_and_goodness, reverse=True)]


def served(candidates: Sequence[Row], margin: float) -> dict[str, Row]:
    """The fastest candidate within the margin of the best one, by need; needs without one are left out.

    The margin of the fastest one of all is `FASTEST`, and it must have been timed.
    """
    chosen: dict[str, Row] = {}
    for need, serves in NEEDS.items():
        fitting = [candidate for candidate in candidates if serves(candidate)]
        if not fitting:
            continue
        fastest = need == FASTEST_NEED
        _, (row, *_) = close_to_best(fitting, FASTEST if fastest else margin)
        if not fastest or row.latency_ms is not None:
            chosen[need] = row
    return chosen
