"""Searching many sentences: sorted by length and cut into batches; results are in the order of the sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.types import Hypotheses, Ranked

# Called with the number of sentences done, and their total.
Watch = Callable[[int, int], None]


def search_all(
    search: Callable[[Tensor], Hypotheses],
    sources: Sequence[Sequence[int]],
    batch: int,
    device: torch.device,
    ranked: bool = False,
    watch: Watch | None = None,
) -> Hypotheses:
    """`search` over all sources (subword ids without end symbols), `batch` sentences at a time, longest first.

    Empty sources are not searched: their translation is empty, with score 0. With `ranked`, all hypotheses are kept, if
    the search gives them. `watch` is called after every batch.
    """

    def padded(rows: list[Sequence[int]]) -> Hypotheses:
        return search(pad(rows, eos=True).to(device, non_blocking=True))

    return search_rows(padded, sources, batch, ranked, watch)


def longest_first(sources: Sequence[Sequence[int]], batch: int) -> list[list[int]]:
    """Indices of sources that are not empty, sorted by length and cut into batches."""
    order = sorted((i for i in range(len(sources)) if len(sources[i])), key=lambda i: -len(sources[i]))
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def search_rows(
    search: Callable[[list[Sequence[int]]], Hypotheses],
    sources: Sequence[Sequence[int]],
    batch: int,
    ranked: bool = False,
    watch: Watch | None = None,
) -> Hypotheses:
    """`search_all` for a search that takes lists of ids instead of a padded tensor."""
    steps = [0] * len(sources)
    result = Hypotheses([[] for _ in sources], [0.0] * len(sources), steps)
    hypotheses_by_row: list[Ranked] = [[(0.0, [])] for _ in sources]
    result.ranked = (lambda: hypotheses_by_row) if ranked else None
    batches, count = longest_first(sources, batch), 0
    for rows in batches:
        batch_result = search([sources[i] for i in rows])
        for position, row in enumerate(rows):
            result.tokens[row] = batch_result.tokens[position]
            result.scores[row] = batch_result.scores[position]
            steps[row] = batch_result.steps[position] if batch_result.steps else 0
        if batch_result.candidates is not None:
            result.candidates = result.candidates or [0] * len(sources)
            for position, row in enumerate(rows):
                result.candidates[row] = batch_result.candidates[position]
        if batch_result.traces is not None:
            if result.traces is None:
                result.traces = [[[] for _ in sources] for _ in batch_result.traces]
            for trace_outputs, translations in zip(result.traces, batch_result.traces, strict=True):
                for row, tokens in zip(rows, translations, strict=True):
                    trace_outputs[row] = tokens
        if batch_result.ranked is None:
            result.ranked = None
        elif ranked:
            for row, hypotheses in zip(rows, batch_result.ranked(), strict=True):
                hypotheses_by_row[row] = hypotheses
        count += len(rows)
        if watch is not None:
            watch(count, sum(map(len, batches)))
    return result
