"""Sentences that dev or test sets have in common with the training text, compared by their `key`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workflow_src.config.texts import TRAINING_SPLITS
from workflow_src.data.characters import key
from workflow_src.data.lines import count_lines, zipped_lines
from workflow_src.data.splits import Row
from workflow_src.runtime.workers import Workers, blocks_of

# Pairs that a process compares at once.
BLOCK = 1024
# The keys of a source and of each of its references.
Keys = tuple[str, tuple[str, ...]]


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
    known = {(source, target) for source, references in others for target in references}
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
            "pair": sum(any((source, target) in shared for target in references) for source, references in pairs),
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
