"""Searching many sentences: sorted by length and cut into batches; results are in the order of the sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
) -> Hypotheses:
    """`search` over all sources (subword ids without end symbols), `batch` sentences at a time, longest first.

    Empty sources are not searched: their translation is empty, with score 0.
    """

    def padded(rows: list[Sequence[int]]) -> Hypotheses:
        return search(pad(rows, eos=True).to(device, non_blocking=True))

    return search_rows(padded, sources, batch)


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
    threads: int = 1,
) -> Hypotheses:
    """`search_all` for a search that takes lists of ids instead of a padded tensor, in so many `threads` at once.

    With `ranked`, all hypotheses are kept, if the search gives them. `watch` is called after every batch.
    """
    result = Hypotheses([[] for _ in sources], [0.0] * len(sources), [0] * len(sources))
    hypotheses_by_row: list[Ranked] = [[(0.0, [])] for _ in sources]
    result.ranked = (lambda: hypotheses_by_row) if ranked else None
    batches, count = longest_first(sources, batch), 0
    groups = ([sources[row] for row in rows] for rows in batches)
    with contextlib.ExitStack() as stack:
        several = stack.enter_context(ThreadPoolExecutor(threads)).map if min(threads, len(batches)) > 1 else map
        for rows, batch_result in zip(batches, several(search, groups), strict=True):
            for name in ("tokens", "scores", "steps", "candidates", "cut"):
                _place(result, name, rows, getattr(batch_result, name))
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


def _place(result: Hypotheses, name: str, rows: Sequence[int], values: Sequence[Any] | None) -> None:
    """Put the values of a batch into a column of all sentences, which is 0 for those without any."""
    if values is None:
        return
    if getattr(result, name) is None:
        setattr(result, name, [0] * len(result.tokens))
    column = getattr(result, name)
    for row, value in zip(rows, values, strict=True):
        column[row] = value
