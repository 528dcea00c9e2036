"""Splitting a corpus in which sentences repeat, so that nothing of dev and test occurs in train."""

from __future__ import annotations

import array
import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from workflow_src.config.datasets import TEST, GroupSplit, NthSplit, Split
from workflow_src.data.drops import words
from workflow_src.data.escapes import BPE_SIGNS, Escape
from workflow_src.data.groups import Groups, StoredRows, groups_of
from workflow_src.errors import ArtifactError

Pair = tuple[str, str]


class Row(NamedTuple):
    """A normalised pair, its raw lines (source, target, further references) and their number, from 0.

    A line of text in one language is both sides.
    """

    source: str
    target: str
    raw: tuple[str, ...]
    number: int


@dataclasses.dataclass
class SplitRows:
    """Rows of each split by number, and how many rows are in none of them, by reason.

    repeated           the same two sentences are in another row
    other_translation  its key sentence has another translation, which is kept
    held_out_group     it is connected to the pair of dev or test that its group gave
    """

    train: array.array[int] = dataclasses.field(default_factory=lambda: array.array("i"))
    dev: list[int] = dataclasses.field(default_factory=list)
    test: list[int] = dataclasses.field(default_factory=list)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def connected_groups(pairs: StoredRows, settings: GroupSplit, left_out: Mapping[str, int]) -> SplitRows:
    """Train, dev and test of normalised (key language, other language) pairs, reproducible from `settings.seed`.

    Sentences of either side with the same `key` connect their pairs. Groups are taken in random order: one pair of each
    fills dev, then test; the rest, and every group with more than `largest_group` distinct key sentences, becomes
    train, shuffled. Of several translations of one key sentence one is kept, at random. Pairs that might have more
    than `longest` subwords on a side never become dev or test. The order of the random draws is part of the
    definition: figures measured on a split need it.

    Raises ArtifactError when there are too few groups for dev and test. The error counts the pairs that were `left_out`
    of the corpus before, by reason.
    """
    groups = groups_of(pairs)
    too_long = {row for row in range(len(pairs)) if not fits(pairs[row], settings.longest)}
    while True:
        rows = _drawn(pairs, groups, settings, too_long)
        if rows is None:
            raise _too_few(pairs, groups, settings, too_long, left_out)
        spelled = _spelled_too_long(pairs, rows, settings.longest)
        if not spelled:
            return rows
        too_long |= spelled


def fits(pair: Pair, longest: int) -> bool:
    """True for a pair with at most `longest` characters a side: a known character is at most one subword."""
    return len(pair[0]) <= longest and len(pair[1]) <= longest


def _spelled_too_long(pairs: StoredRows, rows: SplitRows, longest: int) -> set[int]:
    """Rows of dev and test that may have too many subwords, because train lacks characters of them.

    Subwords are learned from train. They spell every other character, with several subwords each.
    """
    escape_all = Escape("")
    held_out = [*rows.dev, *rows.test]
    near = [row for row in held_out if any(len(escape_all(text)) > longest for text in pairs[row])]
    if not near:
        return set()
    alphabets: tuple[set[str], set[str]] = set(), set()
    for row in rows.train:
        for characters, text in zip(alphabets, pairs[row], strict=True):
            characters.update(text)
    escapes = [Escape(characters, BPE_SIGNS) for characters in alphabets]
    return {row for row in near if any(len(escapes[side](pairs[row][side])) > longest for side in (0, 1))}


def _drawn(pairs: StoredRows, groups: Groups, settings: GroupSplit, too_long: set[int]) -> SplitRows | None:
    """The split, without rows that are `too_long` in dev and test; None where there are too few groups."""
    draw = random.Random(settings.seed)
    order = array.array("i", groups.by_name.tobytes())
    draw.shuffle(order)
    split = SplitRows()
    waiting = [name for name in ("dev", "test") if getattr(settings, name)]
    for group in order:
        rows = groups.members(group)
        if len(rows) == 1:
            # As one of one translation below, without reading it.
            chosen_rows = [draw.choice(rows)]
        else:
            translations: dict[str, list[tuple[str, int]]] = defaultdict(list)
            for row in rows:
                first, second = pairs[row]
                translations[first].append((second, row))
            # One row for each key sentence, in the order of these sentences.
            chosen_rows = [draw.choice(sorted(choices))[1] for _, choices in sorted(translations.items())]
            distinct = sum(len({second for second, _ in choices}) for choices in translations.values())
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
            split.train.extend(chosen_rows)
    if waiting or not split.train:
        return None
    draw.shuffle(split.train)
    split.dropped = +split.dropped
    return split


def _too_few(
    pairs: StoredRows, groups: Groups, settings: GroupSplit, too_long: set[int], left_out: Mapping[str, int]
) -> ArtifactError:
    """The error for a corpus with too few groups, and what to do about it, by what leaves out pairs."""
    problem = (
        f"has {len(pairs)} pairs in {len(groups.by_name)} groups of connected sentences, too few for {settings.dev} "
        f"dev and {settings.test} test pairs beside train"
    )
    fixes = ["lower dev and test under split"]
    if any(left_out.values()):
        problem += f"; left out before: {words(left_out)}"
        fixes.insert(0, "check the texts, recipe.clean and recipe.normalisation")
    if too_long:
        problem += f"; {len(too_long)} are left out as too long (longest: {settings.longest})"
        fixes.append("raise its longest")
    return ArtifactError("the corpus", problem, ", or ".join(fixes))


def every_nth(rows: Iterable[Row], settings: NthSplit) -> Iterator[tuple[str, Row]]:
    """(train or dev, row); every `every`-th row is for dev.

    Where the row whose turn it is might have more than `longest` subwords on a side, the next one that fits is taken.
    """
    since = 0
    for row in rows:
        since += 1
        if since >= settings.every and fits((row.source, row.target), settings.longest):
            since = 0
        yield "train" if since else "dev", row


def divided(
    rows: Iterable[Row], split: Split, languages: tuple[str, ...], dropped: Counter[str], folder: Path
) -> Iterator[tuple[str, Row]]:
    """(train, dev or test, row); pairs that the split leaves out are counted in `dropped`. Rows of groups wait in a
    temporary file in `folder`.

    The split does not depend on the direction: the key language comes first in it.
    """
    if isinstance(split, NthSplit):
        yield from every_nth(rows, split)
        return
    turned = languages[1] == split.key_language
    with StoredRows(folder) as stored:
        for row in rows:
            pair = (row.target, row.source) if turned else (row.source, row.target)
            stored.append([*pair, *row.raw, str(row.number)])
        chosen = connected_groups(stored, split, dropped)
        dropped.update(chosen.dropped)
        for name in ("train", "dev", TEST):
            for place in getattr(chosen, name):
                first, second, *raw, number = stored.texts(place)
                pair = (second, first) if turned else (first, second)
                yield name, Row(*pair, tuple(raw), int(number))
