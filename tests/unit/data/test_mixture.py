"""Mixtures of texts with weights: what epochs have, against counting; rows and ids, against the texts themselves."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data import encoded
from workflow_src.data.batching import collate, epoch_batches
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.mixture import Mixture

WEIGHTS = st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0])


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """`make(name, pairs)`: an encoded text; ids of a row say the text and the row, lengths are random."""
    folder, corpora = tmp_path_factory.mktemp("texts"), {}

    def make(name, count, longest=7):
        if (name, count, longest) not in corpora:
            prefix = folder / f"{name}-{count}-{longest}"
            draw = np.random.default_rng([ord(name), count])
            sides = [[[ord(name) + 5 + row] * int(draw.integers(1, longest + 1)) for row in range(count)] for _ in "st"]
            encoded.write(prefix, zip(*sides, strict=True), {})
            corpora[name, count, longest] = EncodedCorpus.open(prefix)
        return corpora[name, count, longest]

    return make


def drawn(mixture, name, seed, epochs):
    """How often each pair of a text is in so many epochs."""
    first = mixture.firsts[mixture.names.index(name)]
    pairs = len(mixture.texts[mixture.names.index(name)])
    rows = np.concatenate([mixture.epoch_rows(seed, epoch) for epoch in range(epochs)])
    counts = Counter(rows[(rows >= first) & (rows < first + pairs)].tolist())
    return [counts[first + row] for row in range(pairs)]


def test_half_a_text_is_another_half_in_each_of_two_epochs(texts):
    mixture = Mixture({"b": texts("b", 7), "a": texts("a", 10)}, {"b": 0.5, "a": 1.0})
    for seed in range(5):
        assert drawn(mixture, "b", seed, 2) == [1] * 7
        assert drawn(mixture, "a", seed, 1) == [1] * 10
        assert sorted(len(mixture.epoch_rows(seed, epoch)) for epoch in range(2)) == [13, 14]
    # Another order in the next two epochs, and with another seed.
    halves = {(seed, epoch): frozenset(mixture.epoch_rows(seed, epoch)) for seed in (1, 2) for epoch in (0, 2, 4)}
    assert len(set(halves.values())) > 3


@given(weights=st.tuples(WEIGHTS, WEIGHTS), seed=st.integers(0, 9), epochs=st.integers(1, 12))
def test_no_pair_is_ahead_of_another_by_more_than_one(texts, weights, seed, epochs):
    mixture = Mixture({"a": texts("a", 10), "b": texts("b", 6)}, dict(zip("ab", weights, strict=True)))
    for name, pairs, weight in zip("ab", (10, 6), weights, strict=True):
        counts = drawn(mixture, name, seed, epochs)
        passes = Fraction(str(weight)) * epochs
        assert sum(counts) == math.floor(passes * pairs)
        assert set(counts) <= {math.floor(passes), math.ceil(passes)}


def test_a_text_by_itself_has_the_order_of_a_corpus(texts):
    """Against shuffling, sorting by the longer side, cutting and shuffling, one by one."""
    text = texts("a", 60)
    for epoch in range(3):
        generator = np.random.Generator(np.random.PCG64([4, epoch]))
        longer = np.maximum(text.source_lengths, text.target_lengths)
        rows = sorted(generator.permutation(60).tolist(), key=lambda row: longer[row])
        cut, batch = [], []
        for row in rows:
            if batch and (len(batch) + 1) * (longer[row] + 1) > 30:
                cut, batch = [*cut, batch], []
            batch.append(row)
        cut.append(batch)
        expected = [cut[number] for number in generator.permutation(len(cut))]
        batches = epoch_batches(text, 30, 4, epoch, rows=text.epoch_rows(4, epoch))
        assert [batch.tolist() for batch in batches] == expected


def test_ids_of_any_rows_are_those_of_their_texts(texts):
    one, other = texts("a", 10), texts("b", 6)
    mixture = Mixture({"b": other, "a": one}, {"a": 1.0, "b": 1.0})
    rows = np.array([15, 0, 10, 9, 3, 12, 12])
    batch = collate(mixture, rows)
    for place, row in enumerate(rows):
        text, text_row = (one, row) if row < 10 else (other, row - 10)
        source, target = text.source(text_row).tolist(), text.target(text_row).tolist()
        assert batch.source[place, : len(source)].tolist() == source
        assert batch.target[place, : len(target)].tolist() == target
        assert (mixture.source_lengths[row], mixture.target_lengths[row]) == (len(source), len(target))
    assert len(mixture) == 16
    tokens = {
        name: sum(len(text.target(row)) + 1 for row in range(len(text)))
        for name, text in zip("ab", (one, other), strict=True)
    }
    assert (one.epoch_tokens, Mixture({"a": one, "b": other}, {"a": 2.0, "b": 0.5}).epoch_tokens) == (
        tokens["a"],
        round(2 * tokens["a"] + tokens["b"] / 2),
    )


def test_the_content_of_every_text_counts(texts):
    mixture = Mixture({"a": texts("a", 10), "b": texts("b", 6)}, {"a": 1.0, "b": 1.0})
    other = Mixture({"a": texts("a", 10), "b": texts("b", 7)}, {"a": 1.0, "b": 1.0})
    assert mixture.digest != other.digest and "a-10" in mixture.prefix and "b-6" in mixture.prefix
    assert mixture.counts()["b"] == {"pairs": 6, "weight": 1.0, "pairs_an_epoch": 6.0}
