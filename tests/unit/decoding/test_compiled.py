"""What searches that Numba compiles share: look-ups of n-grams from other functions, and compiled code that is old."""

from __future__ import annotations

import os
import types
from pathlib import Path

import numpy as np
import pytest

from workflow_src.decoding import compiled as shared
from workflow_src.decoding.compiled import Words, compiled, interpreted, step, usable, word_score
from workflow_src.decoding.ngram import estimate
from workflow_src.types import EOS

MODEL = estimate(np.random.default_rng(0).integers(3, 9, 80), np.arange(0, 81, 5), 9, 3)


@compiled
def sentence_score(words, start, sentence):
    """What a search of its own sums up, a word at a time."""
    total, node = 0.0, start
    for i in range(len(sentence)):
        score, node = word_score(words, node, sentence[i])
        total += score
    return total, step(words[0], node, 2)[0]


class Wrapped:
    """A language model that is no n-gram model."""

    start = MODEL.start

    def step(self, state, word):
        return MODEL.step(state, word)


@pytest.mark.parametrize("model", [MODEL, Wrapped()])
@pytest.mark.parametrize("fast", [True, False])
def test_any_compiled_function_can_look_up_n_grams(model, fast):
    words = Words(model, 0.5, 2.0, fast)
    run = words.runs(sentence_score)
    for sentence in ([3, 4, 5], [8, 8, 8, 8, 3], [3]):
        state, expected = MODEL.start, 0.0
        for word in sentence:
            value, state = MODEL.step(state, word)
            expected += 0.5 * value + 2.0
        total, end = run(words.arguments, words.start, np.array(sentence))
        assert total == pytest.approx(expected) and end == pytest.approx(MODEL.step(state, EOS)[0])


def test_without_a_model_there_is_the_bonus_alone():
    words = Words(None, 0.5, 2.0)
    total, end = words.runs(sentence_score)(words.arguments, words.start, np.array([3, 4]))
    assert (total, end) == (4.0, 0.0)
    assert interpreted(sentence_score)(words.arguments, words.start, np.array([3, 4])) == (4.0, 0.0)


def test_code_that_is_older_than_what_it_calls_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "NUMBA", types.ModuleType("numba"))
    name = f"{Path(__file__).stem}.search-1.py311.nbi"

    def search():
        """Stands for compiled code."""

    search.stats = types.SimpleNamespace(cache_path=str(tmp_path))
    old, new = tmp_path / name, tmp_path / name.replace("-1", "-2")
    # Functions that the search calls have their own file.
    helper = tmp_path / name.replace("search", "helper")
    for file in (old, new, helper):
        file.touch()
    changed = Path(shared.__file__).stat().st_mtime
    os.utime(old, (changed - 1, changed - 1))
    os.utime(helper, (changed - 1, changed - 1))
    os.utime(new, (changed + 1, changed + 1))
    tried = []
    assert usable(search, lambda: tried.append(list(tmp_path.iterdir())))
    assert tried == [[new]]
