import dataclasses

import numpy as np
import pytest
import torch
from benchmarks.padding import padding_waste
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_src.data import batching, encoded
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.types import EOS, PAD


@dataclasses.dataclass
class Lengths:
    source_lengths: np.ndarray
    target_lengths: np.ndarray


@st.composite
def corpora(draw):
    pairs = draw(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)), max_size=60))
    return Lengths(np.array([s for s, _ in pairs], np.int32), np.array([t for _, t in pairs], np.int32))


def cost(corpus, rows):
    return len(rows) * max(max(corpus.source_lengths[r], corpus.target_lengths[r]) + 1 for r in rows)


def realistic(rows=20_000, seed=3):
    generator = np.random.default_rng(seed)
    source = generator.poisson(10, rows) + 1
    return Lengths(source.astype(np.int32), np.maximum(1, source + generator.integers(-4, 5, rows)).astype(np.int32))


@given(corpora(), st.integers(1, 120), st.integers(0, 3), st.integers(0, 3))
def test_every_row_once_and_within_the_budget(corpus, budget, seed, epoch):
    batches = batching.epoch_batches(corpus, budget, seed, epoch)
    rows = [row for batch in batches for row in batch.tolist()]
    assert sorted(rows) == list(range(len(corpus.source_lengths)))
    for batch in batches:
        assert cost(corpus, batch) <= budget or len(batch) == 1


def shortfall(corpus):
    """Padding that batches of one longer side have when they do not depend on the difference of the sides.

    Both sides of a row are then padded to the longer one; a source has an end symbol beside.
    """
    source, target = corpus.source_lengths.astype(int), corpus.target_lengths.astype(int)
    return np.abs(target - source).sum() / (2 * np.maximum(source, target) + 1).sum()


def test_padding_is_that_of_the_shorter_side_and_budgets_are_filled():
    corpus = realistic()
    batches = batching.epoch_batches(corpus, 2000, 1, 0)
    assert padding_waste(corpus, batches) < shortfall(corpus) + 0.02
    assert np.mean([cost(corpus, batch) for batch in batches]) > 0.95 * 2000


def test_the_label_of_a_length_head_is_independent_of_the_batch():
    """Given the longer side, batches hold the differences that a random assignment of rows to batches gives them.

    The statistic is the sum over batches of squared sums of the differences, centred on their longer side. Its
    distribution under independence comes from permuting the rows of equal longer side.
    """
    corpus = realistic()
    longest = np.maximum(corpus.source_lengths, corpus.target_lengths)
    label = (corpus.target_lengths - corpus.source_lengths).astype(float)
    for value in np.unique(longest):
        label[longest == value] -= label[longest == value].mean()
    order = np.argsort(longest, kind="stable")
    starts = np.flatnonzero(np.diff(longest[order], prepend=-1))
    generator = np.random.default_rng(7)

    def between(batches, labels):
        return sum(labels[batch].sum() ** 2 / len(batch) for batch in batches)

    def permuted():
        moved = label.copy()
        for group in np.split(order, starts[1:]):
            moved[group] = label[generator.permutation(group)]
        return moved

    observed = [between(batching.epoch_batches(corpus, 400, 1, epoch), label) for epoch in range(8)]
    batches = batching.epoch_batches(corpus, 400, 1, 0)
    independent = [between(batches, permuted()) for _ in range(40)]
    deviation = np.std(independent, ddof=1)
    assert abs(np.mean(observed) - np.mean(independent)) < 4 * deviation * np.sqrt(1 / 8 + 1 / 40)


def naive(sequences, eos):
    full = [list(sequence) + [EOS] * eos for sequence in sequences]
    width = max([len(sequence) for sequence in full] + [1])
    return [sequence + [PAD] * (width - len(sequence)) for sequence in full]


sentences = st.lists(st.integers(4, 300), max_size=8)


@given(st.lists(sentences, min_size=1, max_size=8), st.booleans())
def test_pad_is_naive_padding(sequences, eos):
    padded = batching.pad(sequences, eos)
    assert padded.dtype == torch.int64
    assert padded.tolist() == naive(sequences, eos)


def test_pad_of_nothing():
    assert batching.pad([], eos=True).shape == (0, 1)


@settings(max_examples=25)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=10), st.data())
def test_collate_and_waste_against_brute_force(tmp_path_factory, pairs, data):
    prefix = tmp_path_factory.mktemp("corpus") / "x"
    encoded.write(prefix, pairs, {})
    corpus = EncodedCorpus.open(prefix)
    rows = data.draw(st.permutations(range(len(pairs))))
    cut = data.draw(st.integers(1, len(rows)))
    groups = [np.array(group) for group in (rows[:cut], rows[cut:]) if group]
    cells = real = 0
    for group in groups:
        batch = batching.collate(corpus, group)
        assert batch.source.tolist() == naive([pairs[row][0] for row in group], True)
        assert batch.target.tolist() == naive([pairs[row][1] for row in group], False)
        assert batch.source.dtype == batch.target.dtype == torch.int64
        assert batch.indices == tuple(group.tolist())
        cells += batch.source.numel() + batch.target.numel()
        real += int(batch.source_mask.sum() + batch.target_mask.sum())
    assert padding_waste(corpus, groups) == pytest.approx(1 - real / cells)
