"""Contents of files of other stages, as far as a report reads them: texts, examples, comparisons, choices on dev."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator

from workflow_src.config.datasets import Split
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.errors import ConfigError
from workflow_src.evaluation.manifest import ShownDecode
from workflow_src.evaluation.quality.choosing import chosen_point
from workflow_src.evaluation.quality.significance import (
    FORMAT,
    ComparedPair,
    Comparisons,
    PairedDifference,
    PairedTest,
    TestedPair,
)
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import Lenient, check_format, checked
from workflow_src.registry import main_metric
from workflow_src.spec import Metric

AGAIN_COMPARED = "compare the rows again"


class CleaningExample(Lenient):
    """A pair that a filter dropped, or `repaired`, with its line."""

    line: int
    reason: str
    cause: str | None = None
    source: str
    target: str
    repaired: tuple[str, str] | None = None


class CleaningStep(Lenient):
    """Counts of the pairs, or lines, that a filter read, dropped and repaired."""

    title: str
    read: int
    dropped: dict[str, int]
    repaired: int
    examples: tuple[CleaningExample, ...]


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
    found_in_dev: dict[str, int] = {}
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


class TrainingSummary(Lenient):
    """`config.json` of a trained system, as far as its training says it. `texts` are counts by the text of a mixture,
    `without_positions` pairs that are longer than its positions."""

    parameters: int | None = None
    steps: int | None = None
    target_tokens_seen: int | None = None
    minutes: float | None = None
    sizes: dict[str, Any] | None = None
    texts: dict[str, dict[str, int | float]] | None = None
    without_positions: int = 0


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

    @model_validator(mode="after")
    def _followed(self) -> Traces:
        for name in sorted({name for example in self.examples for name in example.searches} - self.searches.keys()):
            raise ConfigError(f"searches.{name}", problem="missing")
        return self


RowKey = tuple[str, str, int]
# Differences by metric, of a row (system, name, seed) from an autoregressive one.
Pairs = Mapping[tuple[RowKey, RowKey], Mapping[str, PairedDifference]]


@dataclasses.dataclass(frozen=True)
class Significance:
    """The content of significance.json: the test, and pairs of rows.

    `tested` has entries by row, why it is compared (with its baseline or its control), removal and metric; `pairs` are
    differences from every autoregressive row.
    """

    test: PairedTest
    tested: Mapping[tuple[RowKey, str, str, str], TestedPair]
    pairs: Pairs


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings chosen on dev for a decode and seed, and the tried points: settings, figures and `mean_steps`.

    `at_edge`: a sentence for each setting that was chosen at the edge of its values. `metric` is the deciding one.
    """

    decode: ShownDecode
    seed: int
    chosen: dict[str, Any]
    points: list[dict[str, Any]]
    at_edge: Sequence[str] = ()
    metric: Metric = dataclasses.field(default_factory=main_metric)

    @property
    def quality(self) -> float:
        """The main metric of the chosen settings."""
        figure: float = chosen_point(self.points, self.chosen)[main_metric().name]
        return figure


def read_significance(path: str | Path) -> Significance:
    """The content of significance.json. Raises ArtifactError for another format, or for the first wrong key."""
    content = read_json(path)
    check_format(content, FORMAT, str(path), AGAIN_COMPARED)
    comparisons = checked(Comparisons, content, str(path), AGAIN_COMPARED)
    tested: dict[tuple[RowKey, str, str, str], TestedPair] = {}
    pairs: dict[tuple[RowKey, RowKey], dict[str, PairedDifference]] = {}
    for pair in comparisons.pairs:
        row, other = (pair.system, pair.name, pair.seed), (*pair.other, pair.seed)
        if isinstance(pair, ComparedPair):
            difference = PairedDifference(pair.difference, pair.error, pair.sentence)
            pairs.setdefault((row, other), {})[pair.metric] = difference
        else:
            tested[row, pair.why, pair.variant, pair.metric] = pair
    return Significance(comparisons.test, tested, pairs)
