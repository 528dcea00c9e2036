"""Outputs of searches, at given lengths or step by step, and posteriors, computed with networks of bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.decoding.refinement import Refinement, open_refinement
from workflow_src.decoding.search import SearchModule, open_search
from workflow_src.decoding.settings import LENGTH_COUNTS
from workflow_src.nn.models import LatentModel
from workflow_src.registry import search_of, searches
from workflow_src.serving.translator import Translator
from workflow_src.spec import SearchSettings, parse
from workflow_src.types import Batch

Result = TypeVar("Result")


def in_batches(compute: Callable[[Sequence[int]], Iterable[Result]], ranks: Sequence[Any], batch: int) -> list[Result]:
    """Results of all sentences, in their order: `compute` returns those of at most `batch` of them, from their numbers.

    Sentences are computed in the order of their `ranks`, so that those of one batch are about as long.
    """
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    results: dict[int, Result] = {}
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        results.update(zip(numbers, compute(numbers), strict=True))
    return [results[number] for number in range(len(ranks))]


def entry_settings(entry: Mapping[str, Any], steps: int) -> SearchSettings:
    """Settings of a search that an analysis follows, with the steps of its entry, or else `steps`."""
    search = searches()[entry["search"]]
    followed_settings = {name: entry[name] for name in search.settings.named("follow") if name in entry}
    series = {search.series: entry.get(search.series, steps)} if search.series else {}
    return parse(search.settings, {**followed_settings, **series})


def traces_of(translator: Translator, lines: list[str], settings: SearchSettings) -> list[list[list[int]]]:
    """Outputs (subword ids) of normalised lines after every step: traces[step][line]."""
    traces = translator.search(lines, translator.request(settings, trace=True, normalised=True)).traces
    assert traces is not None, "searches that are followed return traces"
    return traces


def at_lengths(translator: Translator, settings: SearchSettings) -> SearchModule:
    """A search with these settings and the networks of a bundle, for outputs of given lengths."""
    if search_of(settings).at_lengths:
        # No others are tried; the default number of candidates may exceed the model's lengths.
        counts = {name: 1 for name in LENGTH_COUNTS if name in type(settings).model_fields}
        settings = settings.model_copy(update=counts)
    return open_search(translator.networks(settings), settings, scored=False)


def refinement(translator: Translator, settings: SearchSettings) -> Refinement:
    """A search that refines latents with these settings, and the networks of a bundle."""
    search = open_refinement(translator.networks(settings), settings)
    assert search is not None, "analyses of steps follow searches that take some"
    return search


@torch.no_grad()
def translate_with(
    search: SearchModule, sources: Sequence[Sequence[int]], lengths: Sequence[int], batch: int, device: torch.device
) -> list[list[int]]:
    """Translations (subword ids) of sources, none empty, at these lengths, in the order of the sources.

    They have exactly these lengths but for models whose targets have an end symbol: positions may stay empty there.
    """

    def translated(numbers: Sequence[int]) -> Sequence[list[int]]:
        source = pad([sources[i] for i in numbers], eos=True).to(device)
        return search.translate(source, torch.tensor([lengths[i] for i in numbers], device=device)).tokens

    return in_batches(translated, [-len(source) for source in sources], batch)


def paired_batches(
    model: LatentModel,
    compute: Callable[[Tensor, Tensor], Iterable[Result]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch: int,
    device: torch.device,
) -> list[Result]:
    """Results of all pairs of subword ids (none empty, without end symbols), `batch` of them computed together.

    `compute` takes source (B, S) with end symbols and target (B, T) without, both padded. Targets are cut to the
    positions that the model has.
    """
    longest = model.config.max_positions - model.extra_positions
    targets = [ids[:longest] for ids in targets]

    def padded(numbers: Sequence[int]) -> Iterable[Result]:
        source, target = pad([sources[i] for i in numbers], eos=True), pad([targets[i] for i in numbers], eos=False)
        return compute(source.to(device), target.to(device))

    ranks = [(-len(source), -len(target)) for source, target in zip(sources, targets, strict=True)]
    return in_batches(padded, ranks, batch)


@torch.no_grad()
def posterior_latents(
    model: LatentModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch: int,
    device: torch.device,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of q(z|x,y) for each pair of `paired_batches`, (P, Z) each in float64.

    P counts the latents of a pair: its source subwords with the end symbol, or its target's positions.
    """

    def latents(source: Tensor, target: Tensor) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        memory = model.encode(source)
        mask = model.batch_mask(Batch(source, target))
        mean, deviation = model.posterior(memory, model.whole_target(target), mask)
        for place, real in enumerate(mask):
            variance = deviation[place][real].double() ** 2
            yield mean[place][real].double().cpu().numpy(), variance.cpu().numpy()

    return paired_batches(model, latents, sources, targets, batch, device)
