"""Inputs of analyses: bundles, sentences of a split, translations; and functions that measurements share."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rapidfuzz.distance import LCSseq

from workflow_src.data.lines import read_aligned
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.details import read_details
from workflow_src.jobs import Machine, missing_folder

if TYPE_CHECKING:
    import torch

    from workflow_src.serving.translator import Translator

# Sentences that a network computes together.
BATCH = 64


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Sentences of a split: their lines' numbers, from 0; sources and targets normalised; references to score with.

    `lines` is the number of all lines of the split.
    """

    lines: int
    numbers: list[int]
    sources: list[str]
    targets: list[str]
    references: list[str]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Files of a split, bundles by system, and the selection of the analysis.

    `entries` are those of `spec.Selection`, as the rule's settings hold them.
    """

    source: Path
    target: Path
    reference: Path
    entries: Mapping[str, Any]
    folders: Mapping[str, Path]
    machine: Machine = dataclasses.field(default_factory=Machine)
    _opened: dict[str, Translator] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def searches(self) -> list[dict[str, Any]]:
        """Entries of searches, or systems, that are followed."""
        return self.entries.get("searches", [])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Entries of translations that are read."""
        return self.entries.get("rows", [])

    def translator(self, system: str) -> Translator:
        """The bundle of a system, opened once. Raises ConfigError where it has no folder."""
        from workflow_src.serving.translator import Translator

        if system not in self.folders:
            raise missing_folder(system)
        if system not in self._opened:
            machine = self.machine.device, self.machine.precision, self.machine.threads
            # Engines that are installed on this machine change no analysis.
            opened = Translator.load(self.folders[system], *machine, engine="eager")
            assert isinstance(opened, Translator), f"{self.folders[system]} is no bundle"
            self._opened[system] = opened
        return self._opened[system]

    def details(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Translations of a row, an entry a line: `subwords`, `without_repeated_subwords` (text), and more."""
        return read_details(Path(row["details"]))

    def columns(self) -> tuple[list[str], ...]:
        """All lines of the split: sources, targets, references."""
        return tuple(read_aligned(self.source, self.target, self.reference))

    def sentences(self, count: int) -> Sentences:
        """The first `count` lines without those that are empty on a side. Raises ArtifactError where none is left."""
        columns = self.columns()
        rows = list(enumerate(zip(*columns, strict=True)))[:count]
        chosen = [(number, *texts) for number, texts in rows if all(text.strip() for text in texts)]
        if not chosen:
            lines = "line" if len(rows) == 1 else f"{len(rows)} lines"
            fix = "raise the analysis's sentences, or name another sentence"
            raise ArtifactError(self.source, f"has no sentence with a translation in its first {lines}", fix)
        return Sentences(len(columns[0]), *map(list, zip(*chosen, strict=True)))


def target_ids(subwords: Subwords) -> dict[str, int]:
    """The id of every target piece."""
    return {piece: number for number, piece in enumerate(subwords.names()["target"])}


def read_outputs(path: Path, ids: dict[str, int], count: int) -> list[list[int]]:
    """Subword ids of translations from their details; `ids` are those of `target_ids`.

    Raises ArtifactError where the file does not fit.
    """
    details = read_details(path)
    if len(details) != count:
        raise ArtifactError(path, f"has {len(details)} lines, the source has {count}", "decode it again")
    try:
        return [[ids[piece] for piece in line["subwords"]] for line in details]
    except KeyError as unknown:
        raise ArtifactError(
            path, f"has {unknown}, which the system's subwords lack: both must be of one recipe", "decode it again"
        ) from None


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean over sentences; 0 for one sentence."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def inspected_steps(steps: Sequence[int]) -> list[int]:
    """The numbers of steps after which outputs are looked at: 0, and those of the setting in order."""
    return sorted({0, *steps})


def gain_figures(values: Sequence[float], start: Sequence[float]) -> dict[str, float]:
    """The mean gain of sentences on `start`, with its paired standard error, and the shares of sentences that rose and
    fell."""
    gains = [value - first for value, first in zip(values, start, strict=True)]
    return {
        "gain": statistics.fmean(gains),
        "gain_error": standard_error(gains),
        "risen": sum(gain > 0 for gain in gains) / len(gains),
        "fallen": sum(gain < 0 for gain in gains) / len(gains),
    }


def sentence_generator(seed: int, sentence: int) -> torch.Generator:
    """A generator on the CPU that depends on these two numbers only, and on no machine or device."""
    import torch

    digest = hashlib.sha256(f"{seed} {sentence}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def count_changes(before: str, after: str) -> int:
    """Words added to or missing from `after` against `before`, whichever are more: 0 only for the same words."""
    return LCSseq.distance(before.split(), after.split())


def pick(traces: list[list[list[str]]], number: int) -> list[int]:
    """Indices of the `number` sentences whose words change most between step 0 and the last, summed over searches.

    `traces[search][sentence][step]` are texts. Ties go to the smaller index; indices come back in rank order.
    """
    if not traces:
        return []
    changes = [
        sum(count_changes(search[index][0], search[index][-1]) for search in traces) for index in range(len(traces[0]))
    ]
    return sorted(range(len(changes)), key=lambda index: (-changes[index], index))[:number]
