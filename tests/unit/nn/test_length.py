from __future__ import annotations

import pytest
import torch
from miniatures import lvm, one, padded, pairs

from workflow_src.nn.layers import Memory, attention_bias
from workflow_src.nn.length import LengthHead


def memory_of(lengths: list[int], dim: int = 4, seed: int = 0) -> Memory:
    """Random states; `lengths` count the end symbol."""
    torch.manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(torch.randn(len(lengths), max(lengths), dim), mask, attention_bias(mask))


def head_that_says(difference: int, limit: int = 3, max_positions: int = 10) -> LengthHead:
    head = LengthHead(4, limit, max_positions)
    with torch.no_grad():
        head.outer.weight.zero_()
        head.outer.bias.zero_()[difference + limit] = 5.0
    return head


@pytest.mark.parametrize("difference", [-3, -1, 0, 2, 3])
def test_classes_and_predictions_are_each_others_inverse(difference):
    """Classes count from |y| - |x| = -limit; |x| leaves the end symbol out."""
    memory = memory_of([6, 5])
    head = head_that_says(difference)
    predicted = head.predict(memory)
    assert predicted.tolist() == [5 + difference, 4 + difference]
    assert head.classes(memory, predicted).tolist() == [difference + 3] * 2
    assert head(memory).argmax(-1).tolist() == [difference + 3] * 2


def test_differences_beyond_the_limit_count_as_the_limit():
    head = LengthHead(4, 3, 100)
    classes = head.classes(memory_of([11, 11, 11, 11]), torch.tensor([60, 13, 7, 1]))
    assert classes.tolist() == [6, 6, 0, 0]


def test_predictions_are_possible_lengths():
    assert head_that_says(-3).predict(memory_of([2])).tolist() == [1]
    assert head_that_says(3).predict(memory_of([10])).tolist() == [10]


def test_the_source_length_and_the_mean_state_are_what_it_reads():
    head = LengthHead(4, 3, 10)
    torch.nn.init.normal_(head.source_length)
    memory = memory_of([3, 5])
    for row, length in enumerate([3, 5]):
        mean = memory.states[row, :length].mean(0)
        wanted = head.outer(torch.relu(head.inner(mean + head.source_length[length])))
        assert torch.allclose(head(memory)[row], wanted, atol=1e-6)


def test_padding_changes_nothing():
    from miniatures import lvm

    model = lvm()
    batch = pairs([4, 1, 6], [3, 5, 1])
    together = model.length(model.encode(batch.source))
    assert torch.allclose(model.length(model.encode(padded(batch).source)), together, atol=1e-12)
    for row in range(3):
        assert torch.allclose(model.length(model.encode(one(batch, row).source))[0], together[row], atol=1e-12)


@pytest.mark.parametrize("quantile", [0.05, 0.3, 0.5, 0.9, 0.999999])
def test_a_quantile_is_the_shortest_length_that_is_seldom_exceeded(quantile):
    model = lvm()
    memory = model.encode(pairs([4, 1, 6, 2], [3, 5, 1, 4]).source)
    probabilities = model.length(memory).detach().softmax(-1)
    found = model.predict_lengths(memory, quantile)
    for row in range(4):
        source = int(memory.mask[row].sum()) - 1
        total = 0.0
        for index in range(probabilities.size(1)):
            total += float(probabilities[row, index])
            if total >= quantile:
                break
        assert int(found[row]) == max(1, index - model.length.limit + source)
