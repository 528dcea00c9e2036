"""Tables of a report over two settings of a family's systems: which system stands in which cell."""

from __future__ import annotations

import dataclasses
from typing import Any

from workflow_src.config.experiment import GridConfig, setting_words
from workflow_src.config.resolved import Loaded, System
from workflow_src.errors import ConfigError
from workflow_src.spec import SCORER

# Settings of a system by themselves, and sections that hold settings.
PLAIN = ("preset", "data", "base", "init_from")
SECTIONS = ("model", "objective", "training")


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A system in a grid, and the systems in its roles that score outputs: its energy is shown under the first of them
    that it was measured under, or else under any."""

    system: str
    scorers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class GridInfo:
    """A table over two settings of a family's systems.

    `rows` and `columns` are values of the settings in words; `cells` has a row of cells for each value of `rows`, None
    where no system has the two values; `published` has their published figures, if any.
    """

    title: str
    family: str
    row_setting: str
    column_setting: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[GridCell | None, ...], ...]
    published: tuple[tuple[str, ...], ...] | None = None


def grids(loaded: Loaded) -> tuple[GridInfo, ...]:
    """The grids of `report.grids`, rows and columns in the order in which systems have their values.

    Raises ConfigError for a family or system that is not there, a setting that the family has not, two systems in one
    cell, and a published figure beside the grid.
    """
    return tuple(_grid(config, f"report.grids[{n}]", loaded) for n, config in enumerate(loaded.config.report.grids))


def _grid(config: GridConfig, where: str, loaded: Loaded) -> GridInfo:
    systems = _systems(config, where, loaded)
    if config.rows == config.columns:
        raise ConfigError(f"{where}.columns", config.columns, problem="that of rows", hint="name two settings")
    values = {
        system.name: (_value(system, config.rows, f"{where}.rows"), _value(system, config.columns, f"{where}.columns"))
        for system in systems
    }
    rows, columns = (tuple(dict.fromkeys(pair[side] for pair in values.values())) for side in (0, 1))
    names: dict[tuple[str, str], str] = {}
    for name, pair in values.items():
        if pair in names:
            raise ConfigError(
                where,
                problem=f"{names[pair]} and {name} both have {config.rows} {pair[0]} and {config.columns} {pair[1]}",
                hint="list those that the grid shows under systems",
            )
        names[pair] = name
    cells = tuple(
        tuple(_cell(names[row, column], loaded) if (row, column) in names else None for column in columns)
        for row in rows
    )
    published = _published(config, where, rows, columns)
    return GridInfo(config.title, config.family, config.rows, config.columns, rows, columns, cells, published)


def _systems(config: GridConfig, where: str, loaded: Loaded) -> list[System]:
    """Systems of the family, or those that the grid lists."""
    family_names = dict.fromkeys(system.family.name for system in loaded.systems.values())
    if config.family not in family_names:
        raise ConfigError(f"{where}.family", config.family, problem="no system is of it", allowed=family_names)
    systems = {name: system for name, system in loaded.systems.items() if system.family.name == config.family}
    for name in config.systems or ():
        if name not in systems:
            raise ConfigError(f"{where}.systems", name, problem=f"no system of family {config.family}", allowed=systems)
    return [systems[name] for name in dict.fromkeys(config.systems or systems)]


def _value(system: System, setting: str, where: str) -> str:
    section, _, name = setting.partition(".")
    if not name and section in PLAIN:
        return setting_words(getattr(system, section))
    if section in SECTIONS and name in type(getattr(system, section)).model_fields:
        return setting_words(getattr(getattr(system, section), name))
    fields = [f"{kind}.{field}" for kind in SECTIONS for field in type(getattr(system, kind)).model_fields]
    raise ConfigError(where, setting, problem=f"no setting of system {system.name}", allowed=[*PLAIN, *fields])


def _cell(name: str, loaded: Loaded) -> GridCell:
    """The cell of a system, with the systems in its roles that score outputs."""
    system = loaded.systems[name]
    names = (system.roles[role] for role in system.family.needs if role in system.roles)
    return GridCell(name, tuple(member for member in names if SCORER in loaded.systems[member].traits))


def _published(config: GridConfig, where: str, rows: tuple[str, ...], columns: tuple[str, ...]) -> Any:
    """Published figures cell by cell, en dashes where there are none; None where the grid has none at all."""
    for row, figures in config.published.items():
        if row not in rows:
            raise ConfigError(f"{where}.published", row, problem="no row", allowed=rows)
        for column in figures:
            if column not in columns:
                raise ConfigError(f"{where}.published.{row}", column, problem="no column", allowed=columns)
    if not config.published:
        return None
    return tuple(tuple(config.published.get(row, {}).get(column, "–") for column in columns) for row in rows)
