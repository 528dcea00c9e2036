"""The rows of the main table that other rows are compared with: the reference, baselines and controls."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from workflow_src.config.plan.selection import main_split
from workflow_src.config.resolved import Decode, Loaded
from workflow_src.config.roles import refinement
from workflow_src.registry import searches


class Comparisons:
    """The rows that each row of an experiment is compared with."""

    def __init__(self, loaded: Loaded):
        self.loaded = loaded

    @cached_property
    def reference(self) -> Decode | None:
        """The row that others are compared with in quality and in speed, or None.

        It is the first by the key of its search, without settings chosen on dev and of `teacher` if possible. Rows of
        other engines count where our own code computes none.
        """
        split = main_split(self.loaded)
        keyed = [
            ((d.own_engine, *search.reference(d.values), not d.tune, d.system == "teacher"), d)
            for d in self.loaded.decodes
            if split in d.splits and (search := searches()[d.search]).reference
        ]
        return max(keyed, key=lambda pair: pair[0], default=(None, None))[1]

    def baseline(self, decode: Decode) -> list[str] | None:
        """(system, name) of the row that a decode is compared with; None for a baseline itself.

        Refinement is compared with the unrefined translations of its model, the rest with the reference.
        """
        compared = self._unrefined(decode) or self.reference
        return None if compared is None or compared is decode else [compared.system, compared.name]

    def controls(self, decode: Decode) -> dict[str, list[str]]:
        """(system, name) of the row of a decode's control, by the control's name; empty where it has none."""
        steps = refinement(decode.values)
        if steps is None or steps.control is None:
            return {}
        row = self._control(decode)
        return {steps.control: row} if row else {}

    def _unrefined(self, decode: Decode) -> Decode | None:
        """The row with the unrefined translations of a decode's model; None where its search has no baseline."""
        baseline = searches()[decode.search].baseline
        if not baseline:
            return None
        base = self.loaded.systems[decode.system].base or decode.system
        rows = self._own_on_test.get((base, baseline), []) or self._own_on_test.get((decode.system, baseline), [])
        # Prefer a row with the same length settings: else refinement would get credit for better lengths.
        alike = [row for row in rows if _length_settings(row) == _length_settings(decode)]
        return next(iter(alike or rows), None)

    @cached_property
    def _own_on_test(self) -> dict[tuple[str, str], list[Decode]]:
        """Decodes on test that our own code computes, by system and search."""
        decodes: dict[tuple[str, str], list[Decode]] = {}
        for decode in self.loaded.decodes:
            if self.loaded.test_sets[0] in decode.splits and decode.own_engine:
                decodes.setdefault((decode.system, decode.search), []).append(decode)
        return decodes

    def _control(self, decode: Decode) -> list[str] | None:
        """(system, name) of the row of the base on test that differs only in how it refines; or None.

        Steps, engine, step size, and how lengths and stopping are decided are the same in both.
        """
        base, values = self.loaded.systems[decode.system].base, decode.values
        if base is None:
            return None
        borrowed = {name: getattr(values, name) for name in values.named("steps") if getattr(values, name)}
        changes = {name: searches()[value].control for name, value in borrowed.items()}
        alike = decode.settings | (changes or {"search": searches()[decode.search].control})
        # Settings that the control lacks, such as the size of a step, must have their defaults.
        kind = searches()[alike["search"]].settings
        lacking = type(values).model_fields.keys() - kind.model_fields.keys()
        if any(getattr(values, name) != values.default(name) or name in decode.tune for name in lacking):
            return None
        defaults = {name: kind.default(name) for name in kind.model_fields if name not in alike}
        alike = {name: value for name, value in (alike | defaults).items() if name not in lacking}
        test = self.loaded.test_sets[0]
        rows = (d for d in self.loaded.decodes if d.system == base and test in d.splits)
        return next(([d.system, d.name] for d in rows if d.settings == alike and d.tune == decode.tune), None)


def _length_settings(decode: Decode) -> dict[str, Any]:
    """Settings of a decode that decide target lengths and are not defaults: the value, and values to choose from."""
    values, tune = decode.values, decode.tune
    return {
        name: (getattr(values, name), tune.get(name))
        for name in values.named("length")
        if name in tune or getattr(values, name) != values.default(name)
    }
