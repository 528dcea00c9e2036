"""Contents of files of other stages about texts and examples, as far as a report reads them."""

from __future__ import annotations

from typing import Any

from workflow_src.config.datasets import NormalisationConfig, Split
from workflow_src.records.checked import Lenient


class CleaningStep(Lenient):
    """Counts of the pairs, or lines, that a filter read, dropped and repaired."""

    title: str
    read: int
    dropped: dict[str, int]
    repaired: int
    examples: list[dict[str, Any]]


class Downloaded(Lenient):
    # The kind of the compared checksum, or none.
    check: str


class CorpusSummary(Lenient):
    """`corpus.json`: counts by split, and pairs left out by reason. `monolingual.json` has the same of lines."""

    source: str = ""
    pairs: dict[str, int] = {}
    words: dict[str, dict[str, int]] = {}
    read: dict[str, int] = {}
    dropped: dict[str, dict[str, int]] = {}
    inline_elements: dict[str, int] = {}
    found_in_train: dict[str, dict[str, int]] = {}
    round_trip_bleu: dict[str, float] = {}
    # The share of lines by split and language, of texts that look tokenised.
    looks_tokenised: dict[str, dict[str, float]] = {}
    split: Split | None = None
    normalisation: NormalisationConfig = NormalisationConfig()
    cleaning: tuple[CleaningStep, ...] = ()
    downloads: dict[str, Downloaded] = {}
    sha256: dict[str, str] | None = None


class EncodedText(Lenient):
    """The description of an encoded training text."""

    pairs: int
    max_length: int
    dropped: dict[str, int]
    # The selection of likely pairs by a system.
    likelihood: CleaningStep | None = None
    placeholders: dict[str, int] | None = None
    augmented: dict[str, int] | None = None

    @property
    def read(self) -> int:
        """Pairs before any was left out."""
        return self.pairs + sum(self.dropped.values())

    @property
    def unusable(self) -> dict[str, int]:
        """Pairs that were left out in encoding, by reason, without those that a system found unlikely."""
        return {reason: count for reason, count in self.dropped.items() if reason != "unlikely"}


class FollowedSearch(Lenient):
    system: str
    search: str


class Example(Lenient):
    """A sentence with its translations: of the teacher, of other searches (`beside`), and of followed searches after
    every step."""

    index: int
    source: str
    reference: str
    teacher: str | None
    searches: dict[str, list[str]]
    beside: dict[str, str] = {}


class Traces(Lenient):
    """`traces.json`: sentences that refinement changes, from a `pool`, and the followed searches by title."""

    pool: int
    searches: dict[str, FollowedSearch]
    examples: tuple[Example, ...]
