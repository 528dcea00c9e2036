"""Writing the normalised texts of the splits of a corpus, and what its dev and test sets have in common with others."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import TEST, Split, raw_names
from workflow_src.config.languages import spaced
from workflow_src.config.parts import Languages
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.recipe import SplitRules
from workflow_src.config.texts import TRAINING_SPLITS
from workflow_src.data.characters import key, word_counter
from workflow_src.data.lines import count_lines, zipped_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.placeholders import Placeholders
from workflow_src.data.raw import Places
from workflow_src.data.splits import Row
from workflow_src.records.atomic import atomic
from workflow_src.runtime.workers import Workers, blocks_of

# Pairs that a process compares at once.
BLOCK = 1024
# The keys of a source and of each of its references.
Keys = tuple[str, tuple[str, ...]]


class NormaliseSettings(SplitRules):
    languages: Languages
    normalisation: NormalisationConfig
    split: Split | None = Field(None, description="null where the dataset has dev and test of its own")

    def limit(self, split: str) -> int | None:
        """Pairs of a split that are kept, at most."""
        limits: dict[str, int] = dict(self.limits.items())
        return limits.get(split if split in ("dev", *TRAINING_SPLITS) else TEST)


class Writer:
    """The texts of one split, pair by pair, up to `limit` pairs; `full` says when these are written.

    Dev and test sets have `references` of each source beside source and target. Placeholders of pairs are counted.
    """

    def __init__(
        self,
        split: str,
        settings: NormaliseSettings,
        target_side: Normaliser,
        references: int,
        folder: Path,
        stack: contextlib.ExitStack,
    ):
        """The texts appear in `folder`, all of them, when `stack` is left without an error."""
        codes = settings.languages
        self.names = raw_names(split, codes, references)
        self._reference = None
        if split not in TRAINING_SPLITS:
            self.names.insert(len(codes), f"{split}.reference.{codes[1]}")
            self._reference = target_side.reference
        self._further_target = target_side.line
        self._files = [stack.enter_context(atomic(folder / name)) for name in self.names]
        self._codes = codes
        self._limit = settings.limit(split)
        self.pairs = 0
        self.words = {code: 0 for code in codes if spaced(code)}
        self.places = Places()
        kinds = settings.placeholders
        self.placeholders = Placeholders(kinds) if kinds and len(codes) > 1 else None
        self.counted: Counter[str] = Counter()
        # Pairs (normalised target, raw target) of dev and test; train has too many.
        self.references: list[tuple[str, str]] = []
        # Keys of each source and of its references that are not empty, of the same pairs.
        self.keys: list[Keys] = []

    @property
    def full(self) -> bool:
        return self.pairs == self._limit

    def write(self, row: Row) -> bool:
        """Write a pair if there is room for it; returns whether there was."""
        if self.full:
            return False
        lines = [row.source, row.target][: len(self._codes)]
        for code, line in zip(self._codes, lines, strict=True):
            if code in self.words:
                self.words[code] += word_counter(code)(line)
        if self.placeholders is not None:
            self.counted.update(self.placeholders.count(row.source, row.target))
        if self._reference is not None:
            lines += map(self._reference, row.raw[1:])
            self.references.append((row.target, row.raw[1]))
            targets = (row.target, *map(self._further_target, row.raw[2:]))
            self.keys.append((key(row.source), tuple(key(target) for target in targets if target)))
        for file, line in zip(self._files, lines, strict=True):
            file.write(line + "\n")
        self.pairs += 1
        return True


def fill(writers: dict[str, Writer], assigned: Iterable[tuple[str, Row]], origins: Places | None) -> int:
    """Write rows until the writers are full; returns the number of those written.

    `origins` says where raw lines come from, as far as that is known.
    """
    count = 0
    for split, row in assigned:
        if writers[split].write(row):
            count += 1
            if origins is not None:
                writers[split].places.add(*origins.of(row.number))
        elif all(writer.full for writer in writers.values()):
            break
    return count


def without_held_out(
    assigned: Iterable[tuple[str, Row]], keys: set[tuple[str, str]], dropped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """Assigned rows without training pairs whose keys are among `keys`; these are counted in `dropped`."""
    sources = {source for source, _ in keys}
    for split, row in assigned:
        source = key(row.source) if split in TRAINING_SPLITS else None
        # Most targets need no key, which takes as long as normalising them.
        if source in sources and (source, key(row.target)) in keys:
            dropped["held_out"] += 1
        else:
            yield split, row


def pairs_among(pairs: Sequence[Keys], others: Sequence[Keys]) -> int:
    """The number of `pairs` of which others have the source with one of its references."""
    return _count_among(pairs, {(source, target) for source, references in others for target in references})


def _count_among(pairs: Sequence[Keys], known: Set[tuple[str | None, str | None]]) -> int:
    return sum(any((source, target) in known for target in references) for source, references in pairs)


def found_in_train(
    held_out: Mapping[str, Sequence[Keys]], train: Sequence[Path], threads: int
) -> dict[str, dict[str, int]]:
    """Numbers of the pairs of dev and test sets whose source, target, or both as one pair are among those of train.

    With several references, any of them counts as target. `train` is normalised.
    """
    every_pair = [pair for pairs in held_out.values() for pair in pairs]
    sources = {source for source, _ in every_pair}
    targets = {target for _, references in every_pair for target in references}
    shared: set[tuple[str | None, str | None]] = set()
    with Workers(threads, count_lines(train[0]), _sharing, sources, targets) as workers:
        for _, shared_of_block in workers.map(blocks_of(zipped_lines(*train), BLOCK)):
            shared |= shared_of_block
    train_sources = {source for source, _ in shared}
    train_targets = {target for _, target in shared}
    return {
        split: {
            "source": sum(source in train_sources for source, _ in pairs),
            "target": sum(not train_targets.isdisjoint(references) for _, references in pairs),
            "pair": _count_among(pairs, shared),
        }
        for split, pairs in held_out.items()
    }


def _sharing(
    sources: set[str], targets: set[str]
) -> Callable[[list[tuple[str, str]]], set[tuple[str | None, str | None]]]:
    """A function of pairs: their keys of source and target, None in place of those that are not in the sets."""

    def shared(block: list[tuple[str, str]]) -> set[tuple[str | None, str | None]]:
        keys = [(key(source), key(target)) for source, target in block]
        return {
            (source if source in sources else None, target if target in targets else None) for source, target in keys
        }

    return shared
