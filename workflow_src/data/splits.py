"""Splitting a corpus in which sentences repeat, so that nothing of dev and test occurs in train."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence

from workflow_src.config.datasets import Split
from workflow_src.records.atomic import ArtifactError

Pair = tuple[str, str]
NOT_WORD = re.compile(r"[\W_]+")


def key(sentence: str) -> str:
    """What sentences are compared by: case folded, only letters and digits; a sentence without any is its own key."""
    return NOT_WORD.sub("", sentence.casefold()) or sentence


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
        mine, theirs = self.find(item), self.find(other)
        if mine != theirs:
            self._above[mine] = theirs


def connected_groups(pairs: Sequence[Pair], settings: Split) -> dict[str, list[Pair]]:
    """Train, dev and test of (key language, other language) pairs, reproducible from `settings.seed`.

    Sentences of either side that agree after case folding and without punctuation connect their pairs. Groups are
    taken in random order: one pair of each fills dev, then test; the rest, and every group with more than
    `largest_group` distinct key sentences, becomes train, shuffled. Of several translations of one key sentence one is
    kept, at random. The order of the random draws is part of the definition: figures measured on a split need it.

    Raises ArtifactError when there are too few groups for dev and test.
    """
    draw = random.Random(settings.seed)
    groups = Groups()
    for first, second in pairs:
        # The marks keep the two languages apart; "0" sorts before "1", as the key language comes first.
        groups.join("0" + key(first), "1" + key(second))
    members: dict[str, list[int]] = defaultdict(list)
    for row, (first, _) in enumerate(pairs):
        members[groups.find("0" + key(first))].append(row)
    names = sorted(members)
    draw.shuffle(names)

    made: dict[str, list[Pair]] = {"train": [], "dev": [], "test": []}
    waiting = [name for name in ("dev", "test") if getattr(settings, name)]
    for name in names:
        translations: dict[str, list[str]] = defaultdict(list)
        for row in members[name]:
            translations[pairs[row][0]].append(pairs[row][1])
        items = [(first, draw.choice(sorted(choices))) for first, choices in sorted(translations.items())]
        if waiting and len(items) <= settings.largest_group:
            made[waiting[0]].append(draw.choice(items))
            if len(made[waiting[0]]) == getattr(settings, waiting[0]):
                waiting.pop(0)
        else:
            made["train"] += items
    if waiting or not made["train"]:
        raise ArtifactError(
            f"{len(pairs)} pairs in {len(names)} groups of connected sentences are too few for {settings.dev} dev and "
            f"{settings.test} test pairs beside train; lower dev and test under split."
        )
    draw.shuffle(made["train"])
    return made
