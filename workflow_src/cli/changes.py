"""Changed settings of a job by name, from the parameters that Snakemake recorded and those that it has now."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

# Shown in place of a missing value, where a setting is only on one side.
ABSENT = "(none)"
# Characters of a value that are shown.
SHOWN = 60


@dataclasses.dataclass(frozen=True)
class Change:
    """A setting, and its value before and now as JSON. `ABSENT` where it has none."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} {self.old} → {self.new}" if self.name else f"{self.old} → {self.new}"


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Parameters of a job: its settings, SHA-256 of the user's files by path, and others, of rules that a user adds."""

    settings: dict[str, Any]
    contents: dict[str, Any]
    others: tuple[str, ...]


def parameters(recorded: Iterable[str]) -> Parameters:
    """Parameters as Snakemake records them: the `repr` of each. Settings are JSON, contents a mapping."""
    settings: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    others = []
    for text in recorded:
        value = _value(text)
        if isinstance(value, dict):
            contents = value
        elif isinstance(parsed := _parsed(value), dict):
            settings = parsed
        else:
            others.append(str(value))
    return Parameters(settings, contents, tuple(sorted(others)))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def changed_files(old: Parameters, new: Parameters) -> list[str]:
    """Paths of the user's files with other contents."""
    return [path for path, digest in new.contents.items() if old.contents.get(path) != digest]


def changes(
    old: Parameters, new: Parameters, prefix: str = "", defaults: Mapping[str, Any] = MappingProxyType({})
) -> list[Change]:
    """Changes of settings, whose names get `prefix`, and of other parameters, which have no name.

    A setting that is on one side only has its default on the other, where `defaults` has one at the same place.
    """
    changed = list(_differences(prefix, old.settings, new.settings, defaults))
    if old.others != new.others:
        changed.append(Change("", *(_shortened(", ".join(side.others)) or ABSENT for side in (old, new))))
    return changed


def _differences(name: str, old: Any, new: Any, defaults: Any = ABSENT) -> Iterator[Change]:
    if old == new:
        return
    if _are_sections(old) and _are_sections(new):
        before, now = dict(old), dict(new)
        yield from _differences(name, before, now)
        common = [[section for section in order if section in before and section in now] for order in (before, now)]
        if common[0] != common[1]:
            yield Change(name, _shortened(list(before)), _shortened(list(now)))
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            default = defaults.get(key, ABSENT) if isinstance(defaults, Mapping) else ABSENT
            missing = {} if isinstance(default, dict) else default
            path = f"{name}.{key}" if name else key
            yield from _differences(path, old.get(key, missing), new.get(key, missing), default)
    elif isinstance(old, list) and isinstance(new, list) and any(isinstance(item, (dict, list)) for item in old + new):
        yield from _list_differences(name, old, new)
    else:
        yield Change(name, _shortened(old), _shortened(new))


def _are_sections(value: Any) -> bool:
    """Whether a value is a list of [name, section], which are sections in their order."""
    return isinstance(value, list) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict)
        for entry in value
    )


def _list_differences(name: str, old: list[Any], new: list[Any]) -> Iterator[Change]:
    """Differences of lists of mappings: entry by entry where equally many changed, else how many came and went."""
    removed = [entry for entry in old if entry not in new]
    added = [entry for entry in new if entry not in old]
    if removed and len(removed) == len(added):
        for before, now in zip(removed, added, strict=True):
            yield from _differences(f"{name}[{new.index(now)}]", before, now)
    elif removed or added:
        yield Change(name, f"{len(old)} entries", f"{len(new)} entries ({len(removed)} removed, {len(added)} added)")
    else:
        yield Change(name, "entries", "the same in another order")


def _shortened(value: Any) -> str:
    if value is ABSENT:
        return ABSENT
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
