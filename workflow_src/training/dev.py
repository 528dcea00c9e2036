"""The dev set that a system is measured on while it trains; `families/*/validation.py` has the measures.

Generators are seeded afresh every time, so that figures of different steps compare and validation changes no training.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_src.config.datasets import NormalisationConfig
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import search_all
from workflow_src.errors import ArtifactError
from workflow_src.records.checked import Lenient, read_file
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.types import Batch, Hypotheses

SEED = 20200914
BATCH = 128
BATCH_TOKENS = 4000


class CorpusSummary(Lenient):
    """`corpus.json`, as far as a training reads it: how the text was normalised, and the code of its source."""

    normalisation: NormalisationConfig
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Dev:
    """The dev set: encoded pairs, reference lines, and how subword ids become lines.

    The processes of a `group` divide the work; all of them get all results, in the order of one process.
    """

    corpus: EncodedCorpus
    references: list[str]
    detokenise: Callable[[list[list[int]]], list[str]]
    runtime: Runtime
    sentences: int
    group: Group = dataclasses.field(default_factory=Group)
    # Of BLEU, by the target language.
    tokeniser: str = "13a"

    def generator(self) -> torch.Generator:
        """Random numbers on the device, the same at every validation."""
        return self.runtime.generator(SEED)

    def sources(self) -> list[list[int]]:
        return [self.corpus.source(row).tolist() for row in range(self.sentences)]

    def batches(self) -> list[Batch]:
        """All pairs, in batches whose order never changes."""
        rows = epoch_batches(self.corpus, BATCH_TOKENS, SEED, 0)
        return [collate(self.corpus, np.asarray(indices)).to(self.runtime.device) for indices in rows]

    def over_batches(self, measure: Callable[[Batch], Any], pass_by: Callable[[Batch], None] | None = None) -> list:
        """`measure` of every batch, in order; `pass_by` is called for batches that other processes measure."""
        own_results: dict[int, Any] = {}
        for number, batch in enumerate(self.batches()):
            if number % self.group.size == self.group.rank:
                own_results[number] = measure(batch)
            elif pass_by:
                pass_by(batch)
        results = {number: result for part in self.group.gather(own_results) for number, result in part.items()}
        return [results[number] for number in sorted(results)]

    def translate(self, search: Callable[[Tensor], Hypotheses]) -> list[list[int]]:
        """Tokens of the first sentences under a search."""
        sources = self.sources()
        # Whole batches as `search_all` makes them, so that padding is the same in one process and in several.
        longest_first = sorted((row for row in range(len(sources)) if sources[row]), key=lambda row: -len(sources[row]))
        rows = [row for place, row in enumerate(longest_first) if place // BATCH % self.group.size == self.group.rank]
        hypotheses = search_all(search, [sources[row] for row in rows], BATCH, self.runtime.device)
        tokens_by_row = {
            row: tokens
            for part in self.group.gather(dict(zip(rows, hypotheses.tokens, strict=True)))
            for row, tokens in part.items()
        }
        return [tokens_by_row.get(row, []) for row in range(len(sources))]

    def bleu(self, search: Callable[[Tensor], Hypotheses]) -> float:
        """sacreBLEU of the first sentences under a search, repetitions kept."""
        return self.bleu_of(self.translate(search))

    def bleu_of(self, tokens: list[list[int]]) -> float:
        """sacreBLEU in [0, 100] of the first sentences' translations, as subword ids."""
        return corpus_bleu(self.detokenise(tokens), self.references[: self.sentences], self.tokeniser)


def open_dev(
    corpus: EncodedCorpus,
    reference: Path,
    corpus_summary: Path,
    subwords: Subwords,
    runtime: Runtime,
    group: Group,
    sentences: int | None = None,
    tokeniser: str = "13a",
    reversed: bool = False,
) -> Dev:
    """The dev set with the lines of `reference`; BLEU is of the first `sentences` (None: all).

    With `reversed`, sources are written from targets: `corpus`, `subwords` and `reference` are of that direction, and
    the lines of `reference` are normalised.

    Raises ArtifactError where there are not as many references as encoded pairs.
    """
    references = list(read_lines(reference))
    if len(references) != len(corpus):
        raise ArtifactError(
            reference, f"has {len(references)} lines, {corpus.prefix} has {len(corpus)} pairs", "encode again"
        )
    summary = read_file(CorpusSummary, corpus_summary)
    normaliser = Normaliser(summary.normalisation, language=reference.suffix.removeprefix("."))
    count = min(sentences or len(references), len(references))
    if reversed:
        references = list(map(normaliser.detokenise, references))
    sources = None
    if subwords.placeholders:
        # Symbols of both sides are numbered by the source, whichever side is written.
        text = corpus_summary.with_name(f"dev.{summary.source}")
        sources = list(itertools.islice(read_lines(text), count))

    def lines(ids: list[list[int]]) -> list[str]:
        return [normaliser.detokenise(line) for line in subwords.decode_target(ids, sources)]

    return Dev(corpus, references, lines, runtime, count, group, tokeniser)
