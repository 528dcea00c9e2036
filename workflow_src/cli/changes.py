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


def changes(
    old: Iterable[str], new: Iterable[str], prefix: str = "", defaults: Mapping[str, Any] = MappingProxyType({})
) -> list[Change]:
    """Changes between two sets of parameters as Snakemake records them: each is the `repr` of a value.

    Those that are JSON objects or mappings hold settings, whose names get `prefix`. A setting that is on one side only
    has its default on the other, where `defaults` has one at the same place. Other parameters have no name. There is a
    change wherever settings differ.
    """
    before, now = sorted(map(_value, old), key=str), sorted(map(_value, new), key=str)
    changed = list(_differences(prefix, _settings(before), _settings(now), defaults))
    others = [", ".join(str(value) for value in side if not isinstance(value, dict)) for side in (before, now)]
    if others[0] != others[1]:
        changed.append(Change("", *(_shortened(text) or ABSENT for text in others)))
    return changed


def _value(text: str) -> Any:
    """The value of a recorded parameter; a JSON object as a mapping."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    try:
        content = json.loads(value)
    except (TypeError, ValueError):
        return value
    return content if isinstance(content, dict) else value


def _settings(values: Iterable[Any]) -> dict[str, Any]:
    return {name: setting for value in values if isinstance(value, dict) for name, setting in value.items()}


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
            changed = list(_differences(path, old.get(key, missing), new.get(key, missing), default))
            # A key that was not written had another value than now, even where that value is not known.
            if not changed and (key in old) != (key in new):
                changed = [Change(path, *(_shortened(side.get(key, ABSENT)) for side in (old, new)))]
            yield from changed
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
