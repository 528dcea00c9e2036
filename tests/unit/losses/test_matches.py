"""Expected n-gram matches against enumeration of all alignments, and of all paths through graphs."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from workflow_src.decoding.ctc import collapse
from workflow_src.losses import matches
from workflow_src.losses.matches import match_score, path_match_score

VOCABULARY, WIDTH = 5, 4
BLANK = VOCABULARY - 1
SLOTS = torch.tensor([5, 3, 4, 2, 5])
# A bigram twice, equal neighbours, no word, one word, and more words than slots.
TARGET = torch.tensor(
    [[1, 2, 1, 2, 0, 0], [3, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0], [1, 1, 1, 2, 3, 2]]
)
MASK = torch.arange(5) < SLOTS[:, None]


def layer(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((len(SLOTS), 5, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def ngrams(words, size: int) -> Counter:
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def of_slots(probabilities, row: int):
    """All outputs of a sentence with CTC, and their probabilities."""
    for path in itertools.product(range(VOCABULARY), repeat=int(SLOTS[row])):
        probability = torch.stack([probabilities[row, slot, symbol] for slot, symbol in enumerate(path)]).prod()
        yield collapse(list(path), BLANK), probability


def of_paths(words, transitions, row: int):
    """All outputs of a sentence's graph, and their probabilities."""
    inner = range(1, int(SLOTS[row]) - 1)
    for count in range(len(inner) + 1):
        for visited in itertools.combinations(inner, count):
            path = [0, *visited, int(SLOTS[row]) - 1]
            moved = torch.stack([transitions[row, i, j] for i, j in itertools.pairwise(path)]).prod()
            for output in itertools.product(range(VOCABULARY), repeat=count):
                put_out = [words[row, vertex, word] for vertex, word in zip(visited, output, strict=True)]
                yield list(output), moved * torch.stack(put_out).prod() if put_out else moved


def enumerated(outputs, row: int, size: int):
    """F1 from the mean counts over all outputs of a sentence."""
    expected: dict[tuple[int, ...], torch.Tensor] = {}
    for output, probability in outputs:
        for ngram, count in ngrams(output, size).items():
            expected[ngram] = expected.get(ngram, 0) + count * probability
    reference = ngrams([token for token in TARGET[row].tolist() if token], size)
    matches = sum(torch.clamp(expected[ngram], max=count) for ngram, count in reference.items() if ngram in expected)
    total = sum(expected.values()) + sum(reference.values())
    score = 2 * matches / total if expected or reference else 0.0
    return torch.as_tensor(score, dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 12, 2**20])
@pytest.mark.parametrize("size", [1, 2])
def test_score_and_gradients_are_those_of_all_alignments(monkeypatch, size, rows):
    monkeypatch.setattr(matches, "block_rows", lambda _hidden, _classes: rows)
    tensors = layer()
    hidden, weight, bias = tensors
    probabilities = (hidden @ weight.T + bias).softmax(-1)
    expected = [enumerated(of_slots(probabilities, row), row, size) for row in range(len(SLOTS))]
    actual = match_score(hidden, weight, bias, MASK, TARGET, BLANK, size)
    assert actual.tolist() == pytest.approx(torch.stack(expected).tolist(), abs=1e-12)
    # Every sentence with a weight of its own, so that none hides another.
    weights = range(1, 6)
    total = sum(factor * score for factor, score in zip(weights, expected, strict=True))
    for gradient, other in zip(
        torch.autograd.grad((actual * torch.tensor(weights)).sum(), tensors),
        torch.autograd.grad(total, tensors),
        strict=True,
    ):
        assert torch.allclose(gradient, other, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
def test_score_and_gradients_are_those_of_all_paths(size):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(5, 5, VOCABULARY, generator=generator, dtype=torch.float64).requires_grad_()
    moves = torch.randn(5, 5, 5, generator=generator, dtype=torch.float64).requires_grad_()
    words = scores.softmax(-1)
    vertex = torch.arange(5)
    possible = (vertex > vertex[:, None]) & MASK[:, None]
    transitions = torch.where(possible, moves, -1e30).softmax(-1) * possible
    own = words.gather(-1, TARGET[:, None].expand(-1, 5, -1)) * (TARGET != 0)[:, None]
    expected = [enumerated(of_paths(words, transitions, row), row, size) for row in range(len(SLOTS))]
    actual = path_match_score(own, transitions, SLOTS, TARGET, size)
    assert actual.tolist() == pytest.approx(torch.stack(expected).tolist(), abs=1e-12)
    total = sum(factor * score for factor, score in zip(range(1, 6), expected, strict=True))
    gradients = torch.autograd.grad((actual * torch.arange(1, 6)).sum(), [scores, moves], retain_graph=True)
    for gradient, other in zip(gradients, torch.autograd.grad(total, [scores, moves]), strict=True):
        assert torch.allclose(gradient, other, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
def test_padding_and_batching_change_nothing(size):
    hidden, weight, bias = layer(1)
    together = match_score(hidden, weight, bias, MASK, TARGET, BLANK, size)
    # What padded slots hold has no meaning.
    wider = torch.cat([hidden.masked_fill(~MASK[..., None], 7.0), torch.full((5, 2, WIDTH), -3.0)], 1)
    padded = torch.nn.functional.pad(TARGET, (0, 3)), torch.nn.functional.pad(MASK, (0, 2))
    assert torch.allclose(match_score(wider, weight, bias, padded[1], padded[0], BLANK, size), together, atol=1e-12)
    for row in range(5):
        slots, words = int(SLOTS[row]), max(1, int((TARGET[row] != 0).sum()))
        alone = hidden[row : row + 1, :slots], MASK[row : row + 1, :slots], TARGET[row : row + 1, :words]
        score = match_score(alone[0], weight, bias, alone[1], alone[2], BLANK, size)
        assert torch.allclose(score, together[row : row + 1], atol=1e-12)


def test_words_count_wherever_they_stand():
    """An output of the target's bigrams in another order has all of their matches but the seam's."""
    symbols = torch.tensor([[3, 1, 0, 0, 1, 2], [1, 2, 3, 1, 4, 4]])
    target = torch.tensor([[1, 2, 3, 1], [1, 2, 3, 1]])
    hidden = 60.0 * torch.nn.functional.one_hot(symbols.masked_fill(symbols == 0, BLANK), VOCABULARY).double()
    weight, bias = torch.eye(VOCABULARY, dtype=torch.float64), torch.zeros(VOCABULARY, dtype=torch.float64)
    score = match_score(hidden, weight, bias, torch.ones(2, 6, dtype=torch.bool), target, BLANK, 2)
    # Of "3 1 1 2", the bigrams are 31, 11 and 12.
    assert score.tolist() == pytest.approx([2 * 2 / (3 + 3), 1.0], abs=1e-9)
