"""Splitting a corpus in which sentences repeat, so that nothing of dev and test occurs in train."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from workflow_src.config.datasets import GroupSplit, NthSplit
from workflow_src.data.characters import bare, key
from workflow_src.data.escapes import BPE_SIGNS, Escape
from workflow_src.errors import ArtifactError

Pair = tuple[str, str]


class Groups:
    """Union-find over strings. The name of a group is one of its strings, which one depends on the order of joins."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def find(self, item: str) -> str:
        """The name of the group of `item`; paths are shortened on the way."""
        above = self._above
        name = item
        while (step := above.setdefault(name, name)) != name:
            name = step
        while above[item] != name:
            above[item], item = name, above[item]
        return name

    def join(self, item: str, other: str) -> None:
        """Puts two groups together under the name of the second."""
        name, other_name = self.find(item), self.find(other)
        if name != other_name:
            self._above[name] = other_name


@dataclasses.dataclass
class SplitRows:
    """Rows of each split by number, and how many rows are in none of them, by reason.

    repeated           the same two sentences are in another row
    other_translation  its key sentence has another translation, which is kept
    held_out_group     it is connected to the pair of dev or test that its group gave
    """

    train: list[int] = dataclasses.field(default_factory=list)
    dev: list[int] = dataclasses.field(default_factory=list)
    test: list[int] = dataclasses.field(default_factory=list)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def connected_groups(pairs: Sequence[Pair], settings: GroupSplit) -> SplitRows:
    """Train, dev and test of normalised (key language, other language) pairs, reproducible from `settings.seed`.

    Sentences of either side with the same `key` connect their pairs. Groups are taken in random order: one pair of each
    fills dev, then test; the rest, and every group with more than `largest_group` distinct key sentences, becomes
    train, shuffled. Of several translations of one key sentence one is kept, at random. Pairs that might have more
    than `longest` subwords on a side never become dev or test. The order of the random draws is part of the
    definition: figures measured on a split need it.

    Raises ArtifactError when there are too few groups for dev and test.
    """
    groups = Groups()
    for first, second in pairs:
        # The digits keep the two languages apart; "0" sorts before "1", as the key language comes first. Groups are
        # named by bare sentences: draws depend on the order of their names.
        names = "0" + bare(first), "1" + bare(second)
        groups.join(*names)
        groups.join("0" + key(first), names[0])
        groups.join("1" + key(second), names[1])
    members: dict[str, list[int]] = defaultdict(list)
    for row, (first, _) in enumerate(pairs):
        members[groups.find("0" + bare(first))].append(row)
    too_long = {row for row, pair in enumerate(pairs) if not fits(pair, settings.longest)}
    while True:
        rows = _drawn(pairs, members, settings, too_long)
        spelled = _spelled_too_long(pairs, rows, settings.longest)
        if not spelled:
            return rows
        too_long |= spelled


def fits(pair: Pair, longest: int) -> bool:
    """True for a pair with at most `longest` characters a side: a known character is at most one subword."""
    return len(pair[0]) <= longest and len(pair[1]) <= longest


def _spelled_too_long(pairs: Sequence[Pair], rows: SplitRows, longest: int) -> set[int]:
    """Rows of dev and test that may have too many subwords, because train lacks characters of them.

    Subwords are learned from train. They spell every other character, with several subwords each.
    """
    escape_all = Escape("")
    held_out = [*rows.dev, *rows.test]
    near = [row for row in held_out if any(len(escape_all(text)) > longest for text in pairs[row])]
    if not near:
        return set()
    escapes = [Escape(set().union(*(pairs[row][side] for row in rows.train)), BPE_SIGNS) for side in (0, 1)]
    return {row for row in near if any(len(escapes[side](pairs[row][side])) > longest for side in (0, 1))}


def _drawn(pairs: Sequence[Pair], members: dict[str, list[int]], settings: GroupSplit, too_long: set[int]) -> SplitRows:
    draw = random.Random(settings.seed)
    names = sorted(members)
    draw.shuffle(names)
    split = SplitRows()
    waiting = [name for name in ("dev", "test") if getattr(settings, name)]
    for name in names:
        rows = members[name]
        translations: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for row in rows:
            translations[pairs[row][0]].append((pairs[row][1], row))
        # One row for each key sentence, in the order of these sentences.
        chosen_rows = [draw.choice(sorted(choices))[1] for _, choices in sorted(translations.items())]
        distinct = len({pairs[row] for row in rows})
        split.dropped["repeated"] += len(rows) - distinct
        split.dropped["other_translation"] += distinct - len(chosen_rows)
        fitting = [row for row in chosen_rows if row not in too_long]
        if waiting and fitting and len(chosen_rows) <= settings.largest_group:
            held_out = getattr(split, waiting[0])
            held_out.append(draw.choice(fitting))
            split.dropped["held_out_group"] += len(chosen_rows) - 1
            if len(held_out) == getattr(settings, waiting[0]):
                waiting.pop(0)
        else:
            split.train += chosen_rows
    if waiting or not split.train:
        raise ArtifactError(
            "the corpus",
            f"has {len(pairs)} pairs in {len(names)} groups of connected sentences, too few for {settings.dev} dev and "
            f"{settings.test} test pairs beside train",
            "lower dev and test under split",
        )
    draw.shuffle(split.train)
    split.dropped = +split.dropped
    return split


class EveryNth:
    """Takes every `every`-th pair for dev, one after the other.

    Where the pair whose turn it is might have more than `longest` subwords on a side, the next one that fits is taken.
    """

    def __init__(self, settings: NthSplit):
        self._every, self._longest = settings.every, settings.longest
        self._since = 0

    def split_of(self, pair: Pair) -> str:
        """`dev` or `train`."""
        self._since += 1
        if self._since < self._every or not fits(pair, self._longest):
            return "train"
        self._since = 0
        return "dev"
