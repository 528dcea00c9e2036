"""What stays of an extended experiment where `only` names some of its systems."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workflow_src.config.experiment import Relations, with_needed
from workflow_src.config.texts import LIKELY, kind_and_system, weights_of
from workflow_src.errors import ConfigError
from workflow_src.registry import analyses, searches
from workflow_src.spec import Use, parse


def staying(only: Any, own: Collection[str], systems: Mapping[str, Any], likelihood: Any) -> set[str]:
    """`only`, systems with settings of their `own`, and all systems that these need. Raises ConfigError."""
    if not isinstance(only, list) or not all(isinstance(name, str) for name in only):
        raise ConfigError("only", only, allowed="a list of systems of the extended experiment")
    for name in only:
        if name not in systems:
            raise ConfigError("only", name, allowed=systems)

    scoring = _section(likelihood)

    def needs(name: str) -> list[str]:
        section = systems[name]
        if isinstance(section, dict):
            section = {field: value for field, value in section.items() if field in Relations.model_fields}
        relations = parse(Relations, section, f"systems.{name}")
        makers = filter(None, map(kind_and_system, weights_of(relations.data or {})))
        scorers = [_section(scoring.get(maker.system)) for maker in makers if maker.kind == LIKELY]
        # Unknown ones are refused where all systems are checked.
        others = [*relations.needs, *(str(scorer.get("backward")) for scorer in scorers)]
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
    if isinstance(decodes := parent.get("decodes"), list):
        remaining = [_decode_without(decode, dropped) for decode in decodes]
        reduced["decodes"] = [decode for decode in remaining if decode is not None]
    if isinstance(sections := parent.get("analyses"), dict):
        reduced["analyses"] = {name: _analysis_without(name, section, dropped) for name, section in sections.items()}
    if isinstance(report := parent.get("report"), dict):
        reduced["report"] = {name: _without_rows(setting, dropped) for name, setting in report.items()}
        if isinstance(grids := report.get("grids"), list):
            reduced["report"]["grids"] = [grid for grid in grids if not _shows(_section(grid), dropped)]
    return reduced


def _section(value: Any) -> dict[str, Any]:
    """A section that is not checked yet; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _without_rows(section: Any, dropped: Mapping[str, Any]) -> Any:
    """A section by SYSTEM or SYSTEM/DECODE without dropped systems; other values as they are."""
    if not isinstance(section, dict):
        return section
    return {row: value for row, value in section.items() if str(row).partition("/")[0] not in dropped}


def _decode_without(decode: Any, dropped: Mapping[str, Any]) -> Any:
    """An entry of `decodes` without dropped systems in its lists; None where no system is left to a setting."""
    reduced = dict(_section(decode))
    search = searches().get(str(reduced.get("search")))
    for setting in reduced.keys() & {"system", *(search.settings.named("role") if search else ())}:
        remaining = [name for name in _listed(reduced[setting]) if not (isinstance(name, str) and name in dropped)]
        if not remaining:
            return None
        if isinstance(reduced[setting], list):
            reduced[setting] = remaining
    return reduced or decode


def _analysis_without(name: str, section: Any, dropped: Mapping[str, Any]) -> Any:
    """The section of an analysis without the names of dropped systems."""
    reduced, analysis = dict(_section(section)), analyses().get(name)
    for setting in reduced.keys() & set(analysis.settings.named(Use.SYSTEMS) if analysis else ()):
        listed = _listed(reduced[setting])
        remaining = [system for system in listed if not (isinstance(system, str) and system in dropped)]
        if not remaining:
            del reduced[setting]
        elif remaining != listed:
            reduced[setting] = remaining
    return reduced | {"enabled": "auto"} if reduced.get("enabled") is True else reduced or section


def _shows(grid: Mapping[str, Any], dropped: Mapping[str, Any]) -> bool:
    """True for a grid with a cell of a dropped system: one that it lists, or else any of its family."""
    listed = grid.get("systems")
    if isinstance(listed, list):
        return any(name in listed for name in dropped)
    return grid.get("family") in dropped.values()
