"""How well lengths are predicted (Lee et al. 2020, section 4.2), and translations of given lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from workflow_src.data.batching import pad
from workflow_src.decoding.latent import translate_batch
from workflow_src.types import Refiner


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
    """A search in a latent-variable model, as `decoding.latent.translate_batch` takes it."""

    model: Any
    search: str
    steps: int = 0
    step_size: float = 1.0
    refiner: Refiner | None = None


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
        hypotheses = translate_batch(
            procedure.model,
            pad([sources[i] for i in rows], eos=True).to(device),
            procedure.search,
            procedure.steps,
            procedure.step_size,
            procedure.refiner,
            lengths=torch.tensor([lengths[i] for i in rows], device=device),
            scored=False,
        )
        for row, tokens in zip(rows, hypotheses.tokens, strict=True):
            found[row] = tokens
    return found


def procedure(translator: Any, entry: dict[str, Any], steps: int) -> Procedure:
    """The search of an entry, with the models of its bundle."""
    steps = 0 if entry["search"] == "prior-mean" else steps
    refiner = translator.models.get(entry["search"])
    return Procedure(translator.models["lvm"], entry["search"], steps, entry["step_size"], refiner)
