"""Choosing settings on dev: the best figure of all combinations wins, ties go to the one listed first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pydantic

from workflow_src.config.experiment import Removal
from workflow_src.config.resolved import typed_value
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.evaluation.quality.computed import is_figure
from workflow_src.evaluation.quality.variants import VARIANTS, Quality
from workflow_src.records.checked import Lenient, read_file
from workflow_src.registry import main_metric
from workflow_src.spec import Metric, SearchSettings

AGAIN = "choose them again"


def choose(
    tried: Iterable[dict[str, Any]], measure: Callable[[dict[str, Any]], Mapping[str, float]], metric: Metric
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings whose `measure(...)[metric.name]` is best, and the whole curve in the order tried."""
    curve: list[dict[str, Any]] = [{"settings": settings, **measure(settings)} for settings in tried]
    best = max(curve, key=lambda point: metric.sign * point[metric.name])
    return best["settings"], curve


def at_edge(kind: type[SearchSettings], tune: Mapping[str, list[Any]], chosen: Mapping[str, Any]) -> list[str]:
    """A sentence for every chosen number that is the smallest or the largest of its values, where the setting allows
    numbers beyond it: a better one may lie there. Settings without effect have none."""
    sentences = []
    for name, values in tune.items():
        if len(values) < 2 or not all(map(is_figure, values)) or not kind.has_effect(name, chosen):
            continue
        value = chosen[name]
        ends = [("smallest", -1)] * (value == min(values)) + [("largest", 1)] * (value == max(values))
        sentences += [
            f"{name} {value:g} is the {end} of its grid: extend it"
            for end, sign in ends
            if _is_allowed(kind, name, value + sign * (1 if isinstance(value, int) else 1e-6 * max(1.0, abs(value))))
        ]
    return sentences


def _is_allowed(kind: type[SearchSettings], name: str, value: float) -> bool:
    try:
        typed_value(kind, name, value)
    except ConfigError:
        return False
    return True


class Point(Lenient):
    """Settings that were tried on dev, and further entries: their figures by metric."""

    model_config = pydantic.ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    settings: dict[str, Any]
    mean_steps: float = 0.0


class Choice(Lenient):
    """The file of settings chosen on dev: the points that were tried, and a sentence for each chosen setting at the
    edge of its values. `tune_by` is the metric that decided, where that is not the main one."""

    chosen: dict[str, Any]
    curve: tuple[Point, ...]
    at_edge: tuple[str, ...] = ()
    tune_by: str | None = None

    @property
    def points(self) -> list[dict[str, Any]]:
        return [point.model_dump() for point in self.curve]


def read_choice(path: str | Path) -> Choice:
    """The settings chosen on dev. Raises ArtifactError for a file without them, or without a figure that decided."""
    choice = read_file(Choice, path)
    deciding = {main_metric().name, choice.tune_by or main_metric().name}
    for number, point in enumerate(choice.points):
        for name in sorted(deciding - point.keys()):
            raise ArtifactError(path, f"has no curve[{number}].{name}", AGAIN)
    if all(point.settings != choice.chosen for point in choice.curve):
        raise ArtifactError(path, "has no figure of the chosen settings", AGAIN)
    return choice


def dev_figure(removal: Removal, quality: str | Path | None, chosen: str | Path | None) -> float:
    """The main metric of a decode on dev: from its file of `quality`, or else from that of the `chosen` settings.

    `removal` names the repetitions that are removed from outputs before they are scored. Raises ArtifactError for a
    file without the figure.
    """
    name = main_metric().name
    if quality is not None:
        figure: Any = read_file(Quality, quality).figures(removal).get(name)
        if not is_figure(figure):
            raise ArtifactError(quality, f"has no figure {VARIANTS[removal]}.{name}", "score the translations again")
        return float(figure)
    assert chosen is not None, "the decode was measured on dev in one of two ways"
    choice = read_choice(chosen)
    return float(chosen_point(choice.points, choice.chosen)[name])


def chosen_point(curve: Iterable[dict[str, Any]], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The point of a curve whose settings dev chose."""
    return next(point for point in curve if point["settings"] == chosen)
