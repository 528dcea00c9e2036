"""Writing the normalised texts of the splits of a corpus."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import TEST, Split, reference_stem
from workflow_src.config.languages import spaced
from workflow_src.config.parts import Languages
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.recipe import SplitRules
from workflow_src.config.texts import TRAINING_SPLITS
from workflow_src.data.characters import key, word_counter
from workflow_src.data.held_out import Keys
from workflow_src.data.normalise import Normaliser
from workflow_src.data.placeholders import Placeholders
from workflow_src.data.raw import Places
from workflow_src.data.splits import Row
from workflow_src.records.atomic import atomic


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
        self.names = [f"{split}.{code}" for code in codes]
        self._reference = None
        if split not in TRAINING_SPLITS:
            further = [reference_stem(split, number) for number in range(2, 1 + references)]
            self.names += [f"{stem}.{codes[1]}" for stem in (f"{split}.reference", *further)]
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
