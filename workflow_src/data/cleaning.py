"""Cleaning a training text: filters one after the other over its pairs, with counts and examples of each."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from workflow_src.errors import DeclarationError, short_repr
from workflow_src.registry import filters
from workflow_src.runtime.workers import Workers, blocks_of
from workflow_src.spec import CAUSE, Check, Filter, Frozen, Pair, Verdict

log = logging.getLogger("continuum")

# Pairs in one call of a filter.
BATCH = 4096
# Examples of a filter's work, and characters of a side that are shown.
EXAMPLES, SHOWN = 3, 200
# Pairs with their numbers in the text.
Numbered = list[tuple[int, Pair]]
# Beside the texts, where filters read scores.
SCORES_FILE = "train.scores"


@dataclasses.dataclass(frozen=True)
class Example:
    """A pair that a filter left out or repaired: its line in the text, from 1, why, and the repaired pair.

    `cause` is what the filter saw in this pair; empty where it says nothing.
    """

    line: int
    source: str
    target: str
    reason: str
    repaired: Pair | None = None
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        repaired = self.repaired and [_printable(self.repaired.source), _printable(self.repaired.target)]
        sides = {"source": _printable(self.source), "target": _printable(self.target), "repaired": repaired}
        return {"line": self.line, "reason": _printable(self.reason), "cause": _printable(self.cause), **sides}


def _is_pair(verdict: object) -> TypeGuard[Pair]:
    return isinstance(verdict, Pair) and all(isinstance(side, str) for side in verdict[:2])


def _printable(text: str) -> str:
    """The beginning of a text, with escapes such as \\u200b in place of characters that terminals do not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:SHOWN])


class Step:
    """One filter over a text, with counts of its work: `read`, `repaired`, `dropped` by reason, `examples`.

    `make` gives the filter's function of a list of pairs; it is called in the process that the filter works in. At most
    `most_examples` examples are drawn evenly from all pairs that it left out or repaired.
    """

    def __init__(self, filter: Filter, make: Callable[[], Check], most_examples: int = EXAMPLES):
        self.filter = filter
        self.make = make
        self._most_examples = most_examples
        self.read = self.repaired = 0
        self.dropped: Counter[str] = Counter()
        self.examples: list[Example] = []
        self._draw = random.Random(filter.name)

    def __call__(self, numbered: Numbered, verdicts: list[Verdict]) -> Numbered:
        """The pairs that stay by the filter's verdicts, as they are or repaired, with their numbers."""
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
                reason, _, cause = verdict.partition(CAUSE)
                self.dropped[reason] += 1
                self._show(Example(number + 1, pair.source, pair.target, reason, cause=cause))
            elif not _is_pair(verdict):
                problem = f"has the verdict {short_repr(verdict)} on line {number + 1}"
                raise DeclarationError(where, problem, "give None, a Pair of two texts, or why it is left out")
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
    """A step for each filter, from settings by its name."""
    return [
        Step(filters()[name], functools.partial(_check_of, name, settings, languages), most_examples)
        for name, settings in cleaning.items()
    ]


def _check_of(name: str, settings: Frozen, languages: tuple[str, str]) -> Check:
    return filters()[name].check(settings, languages)


def clean(pairs: Iterable[Pair], steps: list[Step], threads: int = 1, lines: int = 0) -> Iterator[tuple[int, Pair]]:
    """(number in the text, from 0, pair) of the pairs that every step keeps, in their order.

    In a text of many `lines`, filters that look at no other pairs work in `threads` processes; the others, and what is
    counted and shown, work in this one, so that the result is the same. Raises InputError for settings that a filter
    cannot use.
    """
    batches: Iterator[Numbered] = blocks_of(enumerate(pairs), BATCH)
    with Workers(threads, lines, _judging, [step.make for step in steps if not step.filter.looks_back]) as workers:
        first = 0
        for looks_back, group in itertools.groupby(steps, key=lambda step: step.filter.looks_back):
            following = list(group)
            if looks_back:
                batches = _remembering(following, batches)
            else:
                batches = _judged(workers, following, first, batches)
                first += len(following)
        yield from itertools.chain.from_iterable(batches)


def _remembering(steps: list[Step], batches: Iterable[Numbered]) -> Iterator[Numbered]:
    """Batches after steps that see all pairs in their order."""
    checks = [step.make() for step in steps]
    for batch in batches:
        for step, check in zip(steps, checks, strict=True):
            batch = step(batch, check([pair for _, pair in batch]))
        yield batch


def _judged(workers: Workers, steps: list[Step], first: int, batches: Iterable[Numbered]) -> Iterator[Numbered]:
    """Batches after steps whose filters work in `workers`, where the first of them has the number `first`."""
    tasks = ((first, first + len(steps), batch) for batch in batches)
    for (_, _, batch), verdicts_by_step in workers.map(tasks):
        for step, verdicts in zip(steps, verdicts_by_step, strict=False):
            batch = step(batch, verdicts)
        yield batch


def _judging(makes: list[Callable[[], Check]]) -> Callable[[tuple[int, int, Numbered]], list[list[Verdict]]]:
    """A function of (first, last, numbered pairs): the verdicts of the filters from `first` to `last`, each on what the
    one before it left. It ends at verdicts that are none, of which `Step` makes an error."""
    checks = [make() for make in makes]

    def judge(task: tuple[int, int, Numbered]) -> list[list[Verdict]]:
        first, last, numbered = task
        pairs = [pair for _, pair in numbered]
        verdicts_by_step = []
        for check in checks[first:last]:
            # A plug-in may give anything.
            verdicts: Any = check(pairs)
            verdicts_by_step.append(verdicts)
            if not isinstance(verdicts, list | tuple) or len(verdicts) != len(pairs):
                break
            judged = zip(pairs, verdicts, strict=True)
            pairs = [verdict or pair for pair, verdict in judged if verdict is None or _is_pair(verdict)]
        return verdicts_by_step

    return judge


def report(step: Step, texts: str = "pairs") -> None:
    """Log what a filter did to `texts`: pairs or lines."""
    parts = [f"{step.dropped.total():,} of {step.read:,} {texts} left out"]
    parts += [f"{step.repaired:,} repaired"] if step.repaired else []
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.most_common())
    log.info("%s: %s%s", step.filter.name, ", ".join(parts), f" ({reasons})" if reasons else "")
