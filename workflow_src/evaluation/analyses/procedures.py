"""Searches that analyses follow, from entries of settings: their settings, and translations of given lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workflow_src.data.batching import pad
from workflow_src.decoding.latent import StepMaker, translate_batch
from workflow_src.decoding.settings import LENGTH_COUNTS
from workflow_src.registry import import_object, search_of, searches, step_maker
from workflow_src.serving.translator import Translator
from workflow_src.spec import MODEL, SearchSettings
from workflow_src.types import Hypotheses


def entry_settings(entry: Mapping[str, Any], steps: int) -> SearchSettings:
    """Settings of a search that an analysis follows: the steps of its entry, else these where it takes any."""
    search = searches()[entry["search"]]
    kept = {name: entry[name] for name in search.settings.named("follow") if name in entry}
    series = {search.series: entry.get(search.series, steps)} if search.series else {}
    return search.settings.checked({**kept, **series})


def traces_of(translator: Translator, lines: list[str], settings: SearchSettings) -> list[list[list[int]]]:
    """Outputs (subword ids) of normalised lines after every step: traces[step][line]."""
    traces = translator.search(lines, settings, trace=True, scored=False, normalised=True).traces
    assert traces is not None, "searches that are followed return traces"
    return traces


@dataclasses.dataclass(frozen=True)
class Procedure:
    """Steps in a model with latents, as `decoding.latent.translate_batch` takes them.

    Or, of any model with a length head, `at_lengths`: a function that translates sources (B, S) at lengths (B,), with
    its `label`.
    """

    model: Any
    make_step: StepMaker | None = None
    steps: int = 0
    at_lengths: Callable[[torch.Tensor, torch.Tensor], Hypotheses] | None = None
    label: str | None = None

    def translate(self, source: torch.Tensor, lengths: torch.Tensor) -> Hypotheses:
        """Translations of source (B, S) at lengths (B,)."""
        if self.at_lengths is not None:
            return self.at_lengths(source, lengths)
        return translate_batch(self.model, source, self.make_step, self.steps, lengths=lengths, scored=False)


def procedure(translator: Translator, settings: SearchSettings) -> Procedure:
    """A search with these settings, with the networks of a bundle."""
    search = search_of(settings)
    label = search.row_label(settings)
    if search.at_lengths:
        # At given lengths none are tried, and the default number of them may be more than the model has.
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
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    translations: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        hypotheses = procedure.translate(
            pad([sources[i] for i in rows], eos=True).to(device),
            torch.tensor([lengths[i] for i in rows], device=device),
        )
        for row, tokens in zip(rows, hypotheses.tokens, strict=True):
            translations[row] = tokens
    return translations
