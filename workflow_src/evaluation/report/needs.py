"""Needs of users, which rows serve them, and the rule that a row serves one: the fastest of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from workflow_src.registry import named_systems, refinement, searches
from workflow_src.spec import Metric, Search, SearchSettings

# The fastest row may lose so many points to the best one.
FASTEST = 2.0
FASTEST_NEED = f"fastest within {FASTEST:g} points of the best"


class Shown(Protocol):
    """A row of a table; search and settings are None where they are not declared."""

    @property
    def autoregressive(self) -> bool: ...

    @property
    def search(self) -> Search | None: ...

    @property
    def settings(self) -> SearchSettings | None: ...


Candidate = TypeVar("Candidate")


def carried_roles() -> set[str | None]:
    """Roles of systems that a bundle may carry, such as language models and drafters."""
    kinds = [search.settings for search in searches().values()]
    return {kind.option(name).role for kind in kinds for name in kind.named("carried")}


def helpers(row: Shown) -> dict[str, str]:
    """Other systems of the search, by role."""
    return named_systems(row.settings) if row.settings else {}


def in_one_pass(row: Shown) -> bool:
    """Whether a search neither writes word by word nor computes its output again from an earlier one."""
    if row.autoregressive or row.search is None or row.settings is None:
        return False
    value = getattr(row.settings, row.search.series) if row.search.series else None
    return not ((row.search.traceable and value != row.search.first_value) or refinement(row.settings))


def _with_language_model(row: Shown) -> bool:
    """Whether other systems of the search are such as bundles carry, and none drafts its output."""
    drafted = row.search is not None and row.search.blocks
    return bool(helpers(row)) and set(helpers(row)) <= carried_roles() and not drafted


NEEDS: dict[str, Callable[[Shown], bool]] = {
    FASTEST_NEED: lambda _: True,
    "one pass by itself": lambda row: in_one_pass(row) and not helpers(row),
    "one pass with a language model": lambda row: in_one_pass(row) and _with_language_model(row),
    "best of all": lambda _: True,
    "autoregressive search": lambda row: row.autoregressive and (not helpers(row) or _with_language_model(row)),
}


def close_to_best(
    candidates: Sequence[Candidate],
    figures: Callable[[Candidate], Mapping[Metric, float]],
    latency: Callable[[Candidate], float | None],
    margin: float,
) -> tuple[Candidate, list[Candidate]]:
    """The best candidate, and those within the margin of it in each of its figures, the fastest first.

    The first of the metrics decides which one is the best. Of equally fast ones, and of those without a latency, the
    best comes first.
    """
    metrics = list(dict.fromkeys(metric for candidate in candidates for metric in figures(candidate)))

    def goodness(candidate: Candidate) -> list[float]:
        ours = figures(candidate)
        return [metric.sign * ours[metric] if metric in ours else -math.inf for metric in metrics]

    def speed_and_goodness(candidate: Candidate) -> tuple[float, list[float]]:
        milliseconds = latency(candidate)
        return -math.inf if milliseconds is None else -milliseconds, goodness(candidate)

    def is_close(candidate: Candidate) -> bool:
        ours = figures(candidate)
        return all(
            metric in ours and metric.factor * metric.sign * (figure - ours[metric]) <= margin
            for metric, figure in figures(best).items()
        )

    best = max(candidates, key=goodness)
    return best, sorted(filter(is_close, candidates), key=speed_and_goodness, reverse=True)


def served(
    candidates: Sequence[Candidate],
    shown: Callable[[Candidate], Shown],
    figures: Callable[[Candidate], Mapping[Metric, float]],
    latency: Callable[[Candidate], float | None],
    margin: float,
) -> dict[str, Candidate]:
    """The fastest candidate within the margin of the best one, by need; needs without one are left out.

    The margin of the fastest one of all is `FASTEST`, and it must have been timed.
    """
    chosen: dict[str, Candidate] = {}
    for need, serves in NEEDS.items():
        fitting = [candidate for candidate in candidates if serves(shown(candidate))]
        if not fitting:
            continue
        fastest = need == FASTEST_NEED
        _, (row, *_) = close_to_best(fitting, figures, latency, FASTEST if fastest else margin)
        if not fastest or latency(row) is not None:
            chosen[need] = row
    return chosen
