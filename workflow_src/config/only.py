"""What stays of an extended experiment where `only` names some of its systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workflow_src.config.experiment import LikelihoodConfig
from workflow_src.config.relations import relations, with_needed
from workflow_src.config.texts import LIKELY, kind_and_system
from workflow_src.errors import ConfigError
from workflow_src.registry import analyses, searches
from workflow_src.spec import Use


def staying(
    only: Iterable[str],
    own: Iterable[str],
    systems: Mapping[str, dict[str, Any]],
    likelihood: Mapping[str, LikelihoodConfig],
) -> set[str]:
    """`only`, systems with settings of their `own`, and all systems that these need. Raises ConfigError."""
    for name in only:
        if name not in systems:
            raise ConfigError("only", name, allowed=systems)

    def needs(name: str) -> list[str]:
        needed = relations(name, systems[name])
        origins = filter(None, (kind_and_system(other.value) for other in needed.references))
        scorers = [likelihood[system] for kind, system in origins if kind == LIKELY and system in likelihood]
        others = [*needed.needs, *(scorer.backward or "" for scorer in scorers)]
        # Unknown ones are refused where all systems are checked.
        return [other for other in others if other in systems]

    # Null in `own` removes a system.
    return with_needed([*only, *(name for name in own if name in systems)], needs)


def without(parent: dict[str, Any], dropped: Mapping[str, Any]) -> dict[str, Any]:
    """`parent` without teachers, decodes, scorers, published figures and grids of the systems of `dropped`.

    `dropped` has the families of these systems by name. Switched-on analyses run where a system is left that fits them.
    """
    reduced = dict(parent)
    for section in {"distillation", "likelihood"} & reduced.keys():
        reduced[section] = _without_rows(reduced[section], dropped)
    if "decodes" in parent:
        reduced["decodes"] = list(filter(None, (_decode_without(decode, dropped) for decode in parent["decodes"])))
    if "analyses" in parent:
        sections = parent["analyses"].items()
        reduced["analyses"] = {name: _analysis_without(name, section, dropped) for name, section in sections}
    if "report" in parent:
        settings = parent["report"].items()
        reduced["report"] = {
            name: _without_rows(value, dropped) if isinstance(value, dict) else value for name, value in settings
        }
        if "grids" in parent["report"]:
            reduced["report"]["grids"] = [grid for grid in parent["report"]["grids"] if not _shows(grid, dropped)]
    return reduced


def _without_rows(section: dict[str, Any], dropped: Mapping[str, Any]) -> dict[str, Any]:
    """A section by SYSTEM or SYSTEM/DECODE without dropped systems."""
    return {row: value for row, value in section.items() if row.partition("/")[0] not in dropped}


def _decode_without(decode: dict[str, Any], dropped: Mapping[str, Any]) -> dict[str, Any] | None:
    """An entry of `decodes` without dropped systems in its lists; None where no system is left to a setting."""
    search = searches().get(decode["search"])
    naming = decode.keys() & {"system", *(search.settings.named("role") if search else ())}
    reduced = decode | {setting: _remaining(decode[setting], dropped) for setting in naming}
    return reduced if all(reduced[setting] or not decode[setting] for setting in naming) else None


def _analysis_without(name: str, section: dict[str, Any], dropped: Mapping[str, Any]) -> dict[str, Any]:
    """The section of an analysis without the names of dropped systems."""
    analysis = analyses().get(name)
    naming = section.keys() & set(analysis.settings.named(Use.SYSTEMS) if analysis else ())
    remaining = section | {setting: _remaining(section[setting], dropped) for setting in naming}
    reduced = {setting: value for setting, value in remaining.items() if value or setting not in naming}
    return reduced | {"enabled": "auto"} if reduced.get("enabled") is True else reduced


def _remaining(names: Any, dropped: Mapping[str, Any]) -> Any:
    """A name, or a list of names, without dropped systems; None or an empty list where none is left."""
    if isinstance(names, list):
        return [name for name in names if str(name) not in dropped]
    return None if str(names) in dropped else names


def _shows(grid: Mapping[str, Any], dropped: Mapping[str, Any]) -> bool:
    """True for a grid with a cell of a dropped system: one that it lists, or else any of its family."""
    if (listed := grid.get("systems")) is not None:
        return not dropped.keys().isdisjoint(listed)
    return grid["family"] in dropped.values()
