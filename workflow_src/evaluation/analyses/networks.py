"""Outputs of searches, at given lengths or step by step, and posteriors, computed with networks of bundles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.decoding.latent import on_source, posterior_of
from workflow_src.decoding.refinement import StepMaker, translate_batch
from workflow_src.decoding.settings import LENGTH_COUNTS
from workflow_src.registry import import_object, search_of, searches, step_maker
from workflow_src.serving.translator import Translator
from workflow_src.spec import MODEL, SearchSettings, parse
from workflow_src.types import PAD, EncoderOutput, Hypotheses, LatentModel, SourceLatentModel

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
    traces = translator.search(lines, settings, trace=True, scored=False, normalised=True).traces
    assert traces is not None, "searches that are followed return traces"
    return traces


@dataclasses.dataclass(frozen=True)
class Procedure:
    """Steps in a model with latents, as `decoding.refinement.translate_batch` takes them.

    Or, of any model with a length head, `at_lengths`: a function that translates sources (B, S) at lengths (B,), with
    its `label`.
    """

    model: Any
    make_step: StepMaker | None = None
    steps: int = 0
    at_lengths: Callable[[Tensor, Tensor], Hypotheses] | None = None
    label: str | None = None

    def translate(self, source: Tensor, lengths: Tensor) -> Hypotheses:
        """Translations of source (B, S) at lengths (B,)."""
        if self.at_lengths is not None:
            return self.at_lengths(source, lengths)
        return translate_batch(self.model, source, self.make_step, self.steps, lengths=lengths, scored=False)


def procedure(translator: Translator, settings: SearchSettings) -> Procedure:
    """A search with these settings, with the networks of a bundle."""
    search = search_of(settings)
    label = search.row_label(settings)
    if search.at_lengths:
        # At given lengths no others are tried; the default number of candidates may exceed the model's lengths.
        counts = {name: 1 for name in LENGTH_COUNTS if name in type(settings).model_fields}
        settings = settings.model_copy(update=counts)
    networks = translator.networks(settings)
    model = networks[MODEL]
    if search.at_lengths:
        run = import_object(search.at_lengths)
        return Procedure(
            model, at_lengths=lambda source, lengths: run(networks, source, settings, lengths), label=label
        )
    make_step = step_maker(networks, settings)
    return Procedure(model, make_step, getattr(settings, search.series) if make_step and search.series else 0)


@torch.no_grad()
def translate_with(
    procedure: Procedure, sources: Sequence[Sequence[int]], lengths: Sequence[int], batch: int, device: torch.device
) -> list[list[int]]:
    """Translations (subword ids) of sources, none empty, at these lengths, in the order of the sources.

    They have exactly these lengths but for models whose targets have an end symbol: positions may stay empty there.
    """

    def translated(numbers: Sequence[int]) -> Sequence[list[int]]:
        source = pad([sources[i] for i in numbers], eos=True).to(device)
        return procedure.translate(source, torch.tensor([lengths[i] for i in numbers], device=device)).tokens

    return in_batches(translated, [-len(source) for source in sources], batch)


def positions(model: LatentModel | SourceLatentModel, memory: EncoderOutput, target: Tensor) -> tuple[Tensor, Tensor]:
    """Target (B, T), padded, as a posterior reads it, and the mask (B, P) of the latents' positions."""
    if on_source(model):
        return target, memory.mask
    target = model.whole_target(target)
    return target, target != PAD


def paired_batches(
    model: LatentModel | SourceLatentModel,
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
    longest = model.config.max_positions - getattr(model, "extra_positions", 1)
    targets = [ids[:longest] for ids in targets]

    def padded(numbers: Sequence[int]) -> Iterable[Result]:
        source, target = pad([sources[i] for i in numbers], eos=True), pad([targets[i] for i in numbers], eos=False)
        return compute(source.to(device), target.to(device))

    ranks = [(-len(source), -len(target)) for source, target in zip(sources, targets, strict=True)]
    return in_batches(padded, ranks, batch)


@torch.no_grad()
def posterior_latents(
    model: LatentModel | SourceLatentModel,
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
        target, mask = positions(model, memory, target)
        mean, deviation = posterior_of(model, memory, target, mask)
        for place, real in enumerate(mask):
            variance = deviation[place][real].double() ** 2
            yield mean[place][real].double().cpu().numpy(), variance.cpu().numpy()

    return paired_batches(model, latents, sources, targets, batch, device)
