from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.decoding.batches import search_all
from workflow_src.types import EOS, PAD, Hypotheses

CPU = torch.device("cpu")


class Echo:
    """A search that returns the words of its source with their sum as score, and records its batches."""

    def __init__(self, steps: bool = False, traces: int = 0):
        self.batches: list[list[int]] = []
        self.steps, self.traces = steps, traces

    def __call__(self, source: torch.Tensor) -> Hypotheses:
        rows = [[token for token in row if token not in (PAD, EOS)] for row in source.tolist()]
        assert all(row.count(EOS) == 1 for row in source.tolist())
        self.batches.append([len(row) for row in rows])
        steps = [len(row) for row in rows] if self.steps else None
        traces = [[[*row, step] for row in rows] for step in range(self.traces)] if self.traces else None
        return Hypotheses(rows, [float(sum(row)) for row in rows], steps, traces)


sentences = st.lists(st.lists(st.integers(3, 50), max_size=8), max_size=20)


@given(sentences, st.integers(1, 7))
def test_results_come_in_the_order_given(sources, batch):
    search = Echo(steps=True, traces=3)
    hypotheses = search_all(search, sources, batch, CPU)
    assert hypotheses.tokens == sources
    assert hypotheses.scores == [float(sum(words)) for words in sources]
    assert hypotheses.steps == [len(words) for words in sources]
    if any(sources):
        traces = [[[*words, step] if words else [] for words in sources] for step in range(3)]
        assert hypotheses.traces == traces
    lengths = [length for rows in search.batches for length in rows]
    assert lengths == sorted((len(words) for words in sources if words), reverse=True)
    assert all(len(rows) <= batch for rows in search.batches)


def test_empty_sources_are_not_searched():
    search = Echo()
    hypotheses = search_all(search, [[], [5], []], 4, CPU)
    assert (hypotheses.tokens, hypotheses.scores, hypotheses.steps, hypotheses.traces) == (
        [[], [5], []],
        [0.0, 5.0, 0.0],
        [0, 0, 0],
        None,
    )
    assert search.batches == [[1]]
    nothing = search_all(search, [[], []], 4, CPU)
    assert (nothing.tokens, nothing.scores) == ([[], []], [0.0, 0.0])
    assert search_all(search, [], 4, CPU).tokens == []
    assert search.batches == [[1]]


def test_errors_of_the_search_come_through():
    def fail(source):
        raise ValueError("no such search")

    with pytest.raises(ValueError, match="no such search"):
        search_all(fail, [[4]], 4, CPU)
