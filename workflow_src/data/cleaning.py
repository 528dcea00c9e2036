"""Cleaning a training text: filters one after the other over its pairs, with counts and examples of each."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from workflow_src.errors import DeclarationError, short_repr
from workflow_src.registry import filters, import_object
from workflow_src.spec import Filter, Frozen, Pair, Verdict

log = logging.getLogger("continuum")

# Pairs in one call of a filter.
BATCH = 4096
# Examples of a filter's work, and characters of a side that are shown.
EXAMPLES, SHOWN = 3, 200
# Beside the texts, where filters read scores.
SCORES_FILE = "train.scores"


@dataclasses.dataclass(frozen=True)
class Example:
    """A pair that a filter left out or repaired: its line in the text, from 1, and the repaired pair."""

    line: int
    source: str
    target: str
    reason: str
    repaired: Pair | None = None

    def as_json(self) -> dict[str, Any]:
        repaired = self.repaired and [_printable(self.repaired.source), _printable(self.repaired.target)]
        sides = {"source": _printable(self.source), "target": _printable(self.target), "repaired": repaired}
        return {"line": self.line, "reason": _printable(self.reason), **sides}


def _is_pair(verdict: object) -> TypeGuard[Pair]:
    return isinstance(verdict, Pair) and all(isinstance(side, str) for side in verdict[:2])


def _printable(text: str) -> str:
    """The beginning of a text, with escapes such as \\u200b in place of characters that terminals do not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:SHOWN])


class Step:
    """One filter over a text, with counts of its work: `read`, `repaired`, `dropped` by reason, `examples`.

    At most `most_examples` examples are drawn evenly from all pairs that it left out or repaired.
    """

    def __init__(self, filter: Filter, check: Callable[[list[Pair]], list[Verdict]], most_examples: int = EXAMPLES):
        self.filter, self._check, self._most_examples = filter, check, most_examples
        self.read = self.repaired = 0
        self.dropped: Counter[str] = Counter()
        self.examples: list[Example] = []
        self._draw = random.Random(filter.name)

    def __call__(self, numbered: list[tuple[int, Pair]]) -> list[tuple[int, Pair]]:
        """The pairs that stay, as they are or repaired, with their numbers."""
        verdicts = self._check([pair for _, pair in numbered])
        where = f'filter "{self.filter.name}"'
        if not isinstance(verdicts, list | tuple):
            raise DeclarationError(where, f"gives {short_repr(verdicts)}", "give a list of verdicts")
        if len(verdicts) != len(numbered):
            raise DeclarationError(where, f"has {len(verdicts)} verdicts on {len(numbered)} pairs", "give one each")
        self.read += len(numbered)
        if all(verdict is None for verdict in verdicts):
            return numbered
        remaining = []
        for (number, pair), verdict in zip(numbered, verdicts, strict=True):
            if verdict is None:
                remaining.append((number, pair))
            elif isinstance(verdict, str) and verdict:
                self.dropped[verdict] += 1
                self._show(Example(number + 1, pair.source, pair.target, verdict))
            elif not _is_pair(verdict):
                raise DeclarationError(
                    where,
                    f"has the verdict {short_repr(verdict)} on line {number + 1}",
                    "give None, a Pair of two texts, or why it is left out",
                )
            elif "\n" in verdict.source or "\n" in verdict.target:
                raise DeclarationError(where, f"repairs line {number + 1} to several lines", "join them")
            else:
                self.repaired += 1
                self._show(Example(number + 1, pair.source, pair.target, "repaired", verdict))
                remaining.append((number, verdict))
        return remaining

    def _show(self, example: Example) -> None:
        if len(self.examples) < self._most_examples:
            self.examples.append(example)
        elif (place := self._draw.randrange(self.repaired + self.dropped.total())) < self._most_examples:
            self.examples[place] = example

    def as_json(self) -> dict[str, Any]:
        return step_as_json(
            self.filter.name, self.filter.title, self.read, self.dropped, self.examples, repaired=self.repaired
        )


def step_as_json(
    name: str, title: str, read: int, dropped: Counter[str], examples: Iterable[Example], *, repaired: int = 0
) -> dict[str, Any]:
    """The record of a step of cleaning, which reports show."""
    return {
        "filter": name,
        "title": title,
        "read": read,
        "dropped": dict(dropped.most_common()),
        "repaired": repaired,
        "examples": [example.as_json() for example in sorted(examples, key=lambda example: example.line)],
    }


def steps_of(cleaning: Mapping[str, Frozen], languages: tuple[str, str], most_examples: int = EXAMPLES) -> list[Step]:
    """A step for each filter, from settings by its name. Raises InputError for settings that it cannot use."""
    declared = [(filters()[name], settings) for name, settings in cleaning.items()]
    return [
        Step(filter, import_object(filter.check)(settings, languages), most_examples) for filter, settings in declared
    ]


def clean(pairs: Iterable[Pair], steps: list[Step]) -> Iterator[tuple[int, Pair]]:
    """(number in the text, from 0, pair) of the pairs that every step keeps, in their order."""
    numbered = enumerate(pairs)
    while batch := list(itertools.islice(numbered, BATCH)):
        for step in steps:
            batch = step(batch)
        yield from batch


def report(step: Step, texts: str = "pairs") -> None:
    """Log what a filter did to `texts`: pairs or lines."""
    parts = [f"{step.dropped.total():,} of {step.read:,} {texts} left out"]
    parts += [f"{step.repaired:,} repaired"] if step.repaired else []
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common())
    log.info("%s: %s%s", step.filter.name, ", ".join(parts), f" ({reasons})" if reasons else "")
