"""A preview of cleaning: the filters of a recipe on the first pairs of its training text, without the workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from workflow_src.cli.texts import first_pairs
from workflow_src.config.resolved import Loaded
from workflow_src.data.cleaning import Step, clean, steps_of
from workflow_src.data.corpus import RawPair
from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen, Pair


def preview(loaded: Loaded, count: int, examples: int) -> tuple[list[Step], list[RawPair], bool]:
    """Results of each filter on `count` pairs, with examples; these pairs; and whether the text has more.

    They are the first of each part of train. Raises ConfigError where the recipe has no filters, and ArtifactError
    where a file is not on this machine.
    """
    if not loaded.cleaning:
        raise ConfigError("recipe.clean", problem="missing", hint="name filters, such as clean: {length: {}}")
    recipe = loaded.config.recipe
    steps = steps_of(loaded.cleaning, (recipe.source, recipe.target), examples)
    pairs, has_more = first_pairs(loaded, count)
    for _ in clean((Pair(pair.first, pair.second, pair.score) for pair in pairs), steps):
        pass
    return steps, pairs, has_more


def kept_line(steps: list[Step], count: int, parts: int, has_more: bool) -> str:
    """How many of the first `count` pairs of `parts` parts of train are kept; `has_more`: the parts have more pairs."""
    of_parts = f" of the {parts} parts of train" if parts > 1 else ""
    kept_count = steps[-1].read - steps[-1].dropped.total()
    unseen = has_more and any(step.filter.looks_back for step in steps)
    repeated = " Pairs that are repeated further on are not seen." if unseen else ""
    return f"Of the first {count:,} pairs{of_parts}, {kept_count:,} are kept.{repeated}"


def as_table(steps: list[Step]) -> Table:
    table = Table("filter", "pairs", "left out", "repaired", "by setting")
    for column in table.columns[1:4]:
        column.justify = "right"
    for step in steps:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common())
        numbers = (step.read, step.dropped.total(), step.repaired)
        table.add_row(step.filter.name, *(f"{number:,}" for number in numbers), escape(reasons))
    return table


def example_lines(steps: list[Step], pairs: Sequence[RawPair], cleaning: Mapping[str, Frozen]) -> Iterator[str]:
    """The examples of every filter: its setting, cause, file and line; source and target; and their repaired form."""
    for step in steps:
        for example in step.as_json()["examples"]:
            pair = pairs[example["line"] - 1]
            reason = _with_value(example["reason"], cleaning[step.filter.name])
            cause = f" ({example['cause']})" if example["cause"] else ""
            # Generated text lies in no file.
            place = ", ".join(dict.fromkeys(filter(None, [*pair.names, f"line {pair.number}"])))
            yield f"{step.filter.name}, {reason}{cause}: {place}"
            yield f"    {example['source']}"
            yield f"    {example['target']}"
            for side in example["repaired"] or ():
                yield f"  → {side}"


def _with_value(reason: str, settings: Frozen) -> str:
    """A reason with the value of the setting that it names."""
    value: Any = getattr(settings, reason, None) if reason in type(settings).model_fields else None
    return reason if value is None else f"{reason} {value}"
