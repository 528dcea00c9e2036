"""How well lengths are predicted (Lee et al. 2020, section 4.2), and translations of given lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workflow_src.data.batching import pad
from workflow_src.decoding.latent import StepMaker, translate_batch
from workflow_src.decoding.settings import LENGTH_COUNTS
from workflow_src.registry import import_object, search_of, searches, step_maker
from workflow_src.spec import MODEL, SearchSettings
from workflow_src.types import Hypotheses


@torch.no_grad()
def candidates(model: Any, sources: Sequence[Sequence[int]], count: int, batch: int, device: Any) -> list[list[int]]:
    """For each source (subword ids, none empty) its `count` most probable target lengths, best first."""
    found = []
    for start in range(0, len(sources), batch):
        memory = model.encode(pad(sources[start : start + batch], eos=True).to(device))
        found += model.length.likely(memory, count).tolist()
    return found


def accuracy(predicted: Sequence[Sequence[int]], true: Sequence[int]) -> dict[str, Any]:
    """Shares of sentences whose most probable length is right, or off by at most 1 or 2; and `within_top`, the shares
    whose true length is among the first 1, 2, … candidates. `bias` is predicted minus true, on average.

    Raises ValueError without sentences.
    """
    if not true:
        raise ValueError("there are no lengths to compare: take at least one sentence that is not empty.")
    errors = [lengths[0] - length for lengths, length in zip(predicted, true, strict=True)]
    share = lambda hits: sum(hits) / len(true)  # noqa: E731
    return {
        "exact": share(error == 0 for error in errors),
        "within_1": share(abs(error) <= 1 for error in errors),
        "within_2": share(abs(error) <= 2 for error in errors),
        "bias": sum(errors) / len(true),
        "within_top": [
            share(length in lengths[:count] for lengths, length in zip(predicted, true, strict=True))
            for count in range(1, len(predicted[0]) + 1)
        ],
    }


@dataclasses.dataclass(frozen=True)
class Procedure:
    """Steps in a model with latents, as `decoding.latent.translate_batch` takes them.

    Or, of any model with a length head, `given`: what translates sources (B, S) at lengths (B,), with its `label`.
    """

    model: Any
    make_step: StepMaker | None = None
    steps: int = 0
    given: Callable[[torch.Tensor, torch.Tensor], Hypotheses] | None = None
    label: str | None = None

    def translate(self, source: torch.Tensor, lengths: torch.Tensor) -> Hypotheses:
        """Translations of source (B, S) at lengths (B,)."""
        if self.given is not None:
            return self.given(source, lengths)
        return translate_batch(self.model, source, self.make_step, self.steps, lengths=lengths, scored=False)


@torch.no_grad()
def translate_with(
    procedure: Procedure, sources: Sequence[Sequence[int]], lengths: Sequence[int], batch: int, device: torch.device
) -> list[list[int]]:
    """Translations (subword ids) of sources, none empty, given these lengths, in the order given.

    They have exactly these lengths but for models whose targets have an end symbol: positions may stay empty there.
    """
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    found: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        hypotheses = procedure.translate(
            pad([sources[i] for i in rows], eos=True).to(device),
            torch.tensor([lengths[i] for i in rows], device=device),
        )
        for row, tokens in zip(rows, hypotheses.tokens, strict=True):
            found[row] = tokens
    return found


def procedure(translator: Any, entry: dict[str, Any], steps: int) -> Procedure:
    """The search of an entry, with the networks of its bundle."""
    return procedure_of(translator, entry_settings(entry, steps))


def procedure_of(translator: Any, settings: SearchSettings) -> Procedure:
    """A search with these settings, with the networks of a bundle."""
    search = search_of(settings)
    label = search.row_label(settings)
    if search.at_lengths:
        # How many lengths are tried does nothing at given ones, and its default may be more than the model has.
        counts = {name: 1 for name in LENGTH_COUNTS if name in type(settings).model_fields}
        settings = settings.model_copy(update=counts)
    networks = translator.networks(settings)
    model = networks[MODEL]
    if search.at_lengths:
        run = import_object(search.at_lengths)
        return Procedure(model, given=lambda source, lengths: run(networks, source, settings, lengths), label=label)
    make_step = step_maker(networks, settings)
    return Procedure(model, make_step, getattr(settings, search.series) if make_step else 0)


def entry_settings(entry: dict[str, Any], steps: int) -> SearchSettings:
    """Settings of a search that an analysis follows: the steps of its entry, else these where it takes any."""
    search = searches()[entry["search"]]
    kept = {name: entry[name] for name in search.settings.named("follow") if name in entry}
    series = {search.series: entry.get(search.series, steps)} if search.series else {}
    return search.settings.checked({**kept, **series})
