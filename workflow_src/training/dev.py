"""The dev set that a system is measured on while it trains; `families/*/validation.py` has the measures.

Random numbers follow from a sentence's row alone, so that figures of different steps compare, whoever measures which
batch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import search_all
from workflow_src.errors import ArtifactError, DeclarationError
from workflow_src.losses.draws import sentence_keys
from workflow_src.records.checked import Lenient, read_file
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.training.means import Numbers, divided, read
from workflow_src.training.update import check_names
from workflow_src.types import Batch, DevFigures, Hypotheses

# Seed of the order of batches and of random keys.
SEED = 20200914
BATCH = 128
BATCH_TOKENS = 4000


# Rows of the corpus, sums with counts by name, and translations by name.
BatchFigures = tuple[tuple[int, ...], dict[str, Numbers], Mapping[str, list[list[int]]]]


@dataclasses.dataclass(frozen=True)
class Validation:
    """Figures on dev of a model, and the one that selects weights; see `DevFigures`."""

    figures: Callable[[nn.Module], dict[str, float]]
    criterion: str
    smallest: bool = False
    fault: Callable[[Mapping[str, float]], str | None] | None = None
    # Computes what needs most memory.
    rehearse: Callable[[nn.Module], None] = lambda _model: None


class CorpusNormalisation(Lenient):
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
    # Tokeniser of BLEU, which depends on the target language.
    tokeniser: str = "13a"

    def sources(self) -> list[list[int]]:
        return [self.corpus.source(row).tolist() for row in range(self.sentences)]

    def batches(self) -> list[Batch]:
        """All pairs, in batches whose order never changes."""
        rows = epoch_batches(self.corpus, BATCH_TOKENS, SEED, 0)
        return [collate(self.corpus, np.asarray(indices)).to(self.runtime.device) for indices in rows]

    def keys(self, batch: Batch) -> Tensor:
        """Random keys (B,) of a batch's sentences, the same at every validation."""
        return sentence_keys(batch, SEED)

    @torch.no_grad()
    def figures(self, model: nn.Module, declared: DevFigures) -> dict[str, float]:
        """The figures of a model that its family declares: means over all batches, and BLEU."""
        means: dict[str, list[Numbers]] = {}
        outputs: dict[str, dict[int, list[int]]] = {}
        for rows, of_batch, tokens_by_name in self._over_batches(model, declared):
            for name, mean in of_batch.items():
                means.setdefault(name, []).append(mean)
            for name, tokens in tokens_by_name.items():
                outputs.setdefault(name, {}).update(zip(rows, tokens, strict=True))
        figures = {name: divided(of_batches) for name, of_batches in means.items()}
        for name, search in declared.searches.items():
            figures[name] = self.bleu_of(self.translate(functools.partial(search, model)))
        for name, tokens_by_row in outputs.items():
            figures[name] = self.bleu_of([tokens_by_row[row] for row in range(self.sentences)])
        for name, (first, second) in declared.differences.items():
            if first in figures and second in figures:
                figures[name] = figures[first] - figures[second]
        return figures

    def _over_batches(self, model: nn.Module, declared: DevFigures) -> list[BatchFigures]:
        """Rows of the corpus, sums with counts, and translations of every batch, in order; processes share the work."""
        own_results: dict[int, BatchFigures] = {}
        for number, batch in enumerate(self.batches()):
            if number % self.group.size == self.group.rank:
                measured = declared.measure(model, batch, self.keys(batch))
                own_results[number] = batch.indices, read(measured.means), measured.outputs
        results = {number: result for part in self.group.gather(own_results) for number, result in part.items()}
        return [results[number] for number in sorted(results)]

    def validation(self, declared: DevFigures) -> Validation:
        """The figures that a family declares, on this dev set."""
        figures = functools.partial(self.figures, declared=declared)
        rehearse = functools.partial(self.rehearse, declared=declared)
        return Validation(figures, declared.criterion, declared.smallest, declared.fault, rehearse)

    @torch.no_grad()
    def rehearse(self, model: nn.Module, declared: DevFigures) -> None:
        """Measure the largest batch, and search for the longest sentences; the results are dropped.

        Raises DeclarationError where the criterion is not measured, and for figures that trainings count themselves.
        """
        largest = max(self.batches(), key=lambda batch: batch.source.numel() + batch.target.numel())
        measured = declared.measure(model, largest, self.keys(largest))
        names = {*measured.means, *measured.outputs, *declared.searches}
        names |= {name for name, both in declared.differences.items() if names.issuperset(both)}
        check_names("the validation", names)
        if declared.criterion not in names:
            problem = f'has the criterion "{declared.criterion}", which is not measured'
            raise DeclarationError("the validation", problem, f"name one of {', '.join(sorted(names))}")
        longest = sorted(self.sources(), key=len)[-BATCH:]
        for search in declared.searches.values():
            search_all(functools.partial(search, model), longest, BATCH, self.runtime.device)

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

    def bleu_of(self, tokens: list[list[int]]) -> float:
        """sacreBLEU in [0, 100] of the first sentences' translations, as subword ids, repetitions kept."""
        return corpus_bleu(self.detokenise(tokens), self.references[: self.sentences], self.tokeniser)


def open_dev(
    corpus: EncodedCorpus,
    reference: Path,
    corpus_summary: Path,
    subwords: Subwords,
    runtime: Runtime,
    group: Group,
    sentences: int | None,
    tokeniser: str,
    reversed: bool,
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
    summary = read_file(CorpusNormalisation, corpus_summary)
    normaliser = Normaliser(summary.normalisation, language=reference.suffix.removeprefix("."))
    count = min(sentences or len(references), len(references))
    if reversed:
        references = list(map(normaliser.detokenise, references))
    sources = None
    # Symbols of both sides are numbered by the source, whichever side is written.
    decode = subwords.reversed().decode_source if reversed else subwords.decode_target
    if subwords.placeholders:
        text = corpus_summary.with_name(f"dev.{summary.source}")
        sources = list(itertools.islice(read_lines(text), count))

    def lines(ids: list[list[int]]) -> list[str]:
        return [normaliser.detokenise(line) for line in decode(ids, sources)]

    return Dev(corpus, references, lines, runtime, count, group, tokeniser)
