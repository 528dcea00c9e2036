"""Many sentences through a search: sorted by length, cut into batches, results in the order of the sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.types import Hypotheses


def search_all(
    search: Callable[[Tensor], Hypotheses], sources: Sequence[Sequence[int]], batch: int, device: torch.device
) -> Hypotheses:
    """`search` over all sources (subword ids without end symbols), `batch` sentences at a time, longest first.

    Empty sources are not searched: their translation is empty, with score 0.
    """
    return search_rows(lambda rows: search(pad(rows, eos=True).to(device, non_blocking=True)), sources, batch)


def search_rows(
    search: Callable[[list[Sequence[int]]], Hypotheses], sources: Sequence[Sequence[int]], batch: int
) -> Hypotheses:
    """`search_all` for a search that reads ids and not a padded tensor."""
    order = sorted((i for i in range(len(sources)) if len(sources[i])), key=lambda i: -len(sources[i]))
    steps = [0] * len(sources)
    result = Hypotheses([[] for _ in sources], [0.0] * len(sources), steps)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        part = search([sources[i] for i in rows])
        for position, row in enumerate(rows):
            result.tokens[row] = part.tokens[position]
            result.scores[row] = part.scores[position]
            steps[row] = part.steps[position] if part.steps else 0
        if part.candidates is not None:
            result.candidates = result.candidates or [0] * len(sources)
            for position, row in enumerate(rows):
                result.candidates[row] = part.candidates[position]
        if part.traces is not None:
            if result.traces is None:
                result.traces = [[[] for _ in sources] for _ in part.traces]
            for whole, translations in zip(result.traces, part.traces, strict=True):
                for row, tokens in zip(rows, translations, strict=True):
                    whole[row] = tokens
    return result
