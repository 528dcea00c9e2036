"""Which sentences a language model counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from workflow_src.decoding.ngram import estimate
from workflow_src.families.ngram import NgramConfig
from workflow_src.families.ngram.model import NgramLanguageModel, evenly, fit


@pytest.mark.parametrize("count, most, rows", [(5, None, [0, 1, 2, 3, 4]), (5, 9, [0, 1, 2, 3, 4]), (7, 3, [0, 2, 4])])
def test_rows_are_spread_evenly(count, most, rows):
    assert list(evenly(count, most)) == rows
    assert len(set(evenly(1000, 333))) == 333 and max(evenly(1000, 333)) < 1000


class Corpus:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def target(self, row):
        return np.array(self.rows[row])


def test_only_these_are_counted():
    generator = np.random.default_rng(0)
    rows = [generator.integers(4, 12, 6).tolist() for _ in range(20)]
    model = NgramLanguageModel(NgramConfig(order=2, max_sentences=8), 12, 12, True)
    fit(model, Corpus(rows), Corpus(rows[:3]), SimpleNamespace(target_size=12), None)
    counted_rows = [rows[i] for i in evenly(20, 8)]
    expected = estimate(np.concatenate(counted_rows), np.cumsum([0, *map(len, counted_rows)]), 12, 2)
    assert model.scorer.log_probability(rows[0]) == pytest.approx(expected.log_probability(rows[0]), abs=1e-6)
