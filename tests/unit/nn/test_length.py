from __future__ import annotations

import pytest
import torch
from miniatures import cmlm, lvm, memory_of, one, padded, pairs

from workflow_src.nn.layers import Memory
from workflow_src.nn.length import LengthChoice, LengthHead


def states_of(lengths: list[int], dim: int = 4, seed: int = 0) -> Memory:
    """Random states; `lengths` count the end symbol."""
    torch.manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return memory_of(torch.randn(len(lengths), max(lengths), dim), mask)


def head_that_says(difference: int, limit: int = 3, max_positions: int = 10) -> LengthHead:
    head = LengthHead(4, limit, max_positions)
    with torch.no_grad():
        head.outer.weight.zero_()
        head.outer.bias.zero_()[difference + limit] = 5.0
    return head


@pytest.mark.parametrize("difference", [-3, -1, 0, 2, 3])
def test_classes_and_predictions_are_each_others_inverse(difference):
    """Classes count from |y| - |x| = -limit; |x| leaves the end symbol out."""
    memory = states_of([6, 5])
    head = head_that_says(difference)
    predicted = head.predict(memory)
    assert predicted.tolist() == [5 + difference, 4 + difference]
    assert head.classes(memory, predicted).tolist() == [difference + 3] * 2
    assert head(memory).argmax(-1).tolist() == [difference + 3] * 2


def test_differences_beyond_the_limit_count_as_the_limit():
    head = LengthHead(4, 3, 100)
    classes = head.classes(states_of([11, 11, 11, 11]), torch.tensor([60, 13, 7, 1]))
    assert classes.tolist() == [6, 6, 0, 0]


def test_predictions_are_possible_lengths():
    assert head_that_says(-3).predict(states_of([2])).tolist() == [1]
    assert head_that_says(3).predict(states_of([10])).tolist() == [10]


def test_it_reads_the_source_length_and_the_mean_state():
    head = LengthHead(4, 3, 10)
    torch.nn.init.normal_(head.source_length)
    memory = states_of([3, 5])
    for row, length in enumerate([3, 5]):
        mean = memory.states[row, :length].mean(0)
        expected = head.outer(torch.relu(head.inner(mean + head.source_length[length])))
        assert torch.allclose(head(memory)[row], expected, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_padding_changes_nothing(pooling):
    model = lvm(length_pooling=pooling)
    batch = pairs([4, 1, 6], [3, 5, 1])
    together = model.length(model.encode(batch.source))
    assert torch.allclose(model.length(model.encode(padded(batch).source)), together, atol=1e-12)
    for row in range(3):
        assert torch.allclose(model.length(model.encode(one(batch, row).source))[0], together[row], atol=1e-12)


def test_attention_weighs_the_states_and_padding_has_no_weight():
    torch.manual_seed(3)
    head = LengthHead(4, 3, 10, pooling="attention").double()
    torch.nn.init.normal_(head.source_length)
    torch.nn.init.normal_(head.attention.weight, std=3.0)
    memory = states_of([3, 5, 1])
    memory = memory_of(memory.states.double(), memory.mask)
    # States at padding, however large, are not seen.
    memory.states[~memory.mask] = 1e3
    for row, length in enumerate([3, 5, 1]):
        states = memory.states[row, :length]
        weights = [torch.exp(head.attention.weight[0] @ state + head.attention.bias[0]) for state in states]
        pooled = sum(weight * state for weight, state in zip(weights, states, strict=True)) / sum(weights)
        expected = head.outer(torch.relu(head.inner(pooled + head.source_length[length])))
        assert torch.allclose(head(memory)[row], expected, atol=1e-12)
        if length > 1:
            assert not torch.allclose(pooled, states.mean(0), atol=0.1)


def test_attention_weights_are_trained():
    memory, head = states_of([3, 5]), LengthHead(4, 3, 10, pooling="attention")
    torch.nn.functional.cross_entropy(head(memory), torch.tensor([1, 5])).backward()
    assert head.attention.weight.grad.any()


@pytest.mark.parametrize(
    "share, longer, shorter",
    [
        # Sources of 5, 9, 1 and 14 words, 7, 11, 3 and 16 with both special symbols; targets of 2 more or 3 fewer.
        (0.0, [7, 11, 3, 16], [2, 6, 1, 11]),
        (0.06, [7, 11, 3, 16], [2, 6, 1, 11]),
        (0.11, [7, 12, 3, 17], [2, 7, 1, 12]),
        (0.5, [10, 16, 4, 20], [5, 11, 1, 19]),
        (1.0, [14, 20, 6, 20], [9, 17, 1, 20]),
        (1e30, [20, 20, 20, 20], [20, 20, 20, 20]),
    ],
)
def test_lengthening_by_hand_and_no_further_than_the_positions(share, longer, shorter):
    memory = states_of([6, 10, 2, 15])
    for difference, expected in ((2, longer), (-3, shorter)):
        predicted = head_that_says(difference, max_positions=20).predict(memory, LengthChoice(lengthening=share))
        assert predicted.tolist() == expected


@pytest.mark.parametrize("percent", [6, 7, 11, 29])
def test_a_product_that_is_a_whole_number_is_not_truncated(percent):
    """0.29 · 100 is 28.999… in float64."""
    words = torch.arange(1, 399)
    memory = memory_of(torch.zeros(398, 1, 4), torch.arange(400) <= words[:, None])
    head = head_that_says(0, max_positions=1000)
    added = head.lengths(torch.full((398,), 3), memory, percent / 100) - words
    assert added.tolist() == [percent * (count + 2) // 100 for count in words.tolist()]


def test_likely_lengths_are_lengthened_alike():
    model, batch = lvm(), pairs([6, 9, 8], [3, 5, 1])
    memory = model.encode(batch.source)
    likely = model.length.likely(memory, 4)
    # A third of 6, 9 and 8 words, and two symbols.
    added = torch.tensor([2, 3, 3])[:, None]
    assert torch.equal(model.length.likely(memory, 4, 1 / 3), likely + added)
    assert (likely > 1).all() and (likely.sort(1).values.diff() > 0).all()
    predict = model.length.predict
    assert torch.equal(predict(memory, LengthChoice(None, 1 / 3)), (likely + added)[:, 0])
    assert torch.equal(predict(memory, LengthChoice(0.8, 1 / 3)), predict(memory, LengthChoice(0.8)) + added[:, 0])


def test_where_there_are_fewer_lengths_the_most_probable_fills_up():
    """A length of 1 would be an output of its own, and the mean log-probability prefers short ones."""
    model = cmlm(max_positions=12)
    memory = model.encode(pairs([11, 11], [1, 1]).source)
    lengths = model.length.likely(memory, 9)
    assert lengths[:, :6].sort(1).values.tolist() == [[7, 8, 9, 10, 11, 12]] * 2
    assert torch.equal(lengths[:, 6:], lengths[:, :1].expand(2, 3))


def test_an_end_symbol_takes_one_of_the_positions():
    for end, longest in ((False, 12), (True, 11)):
        model = lvm(max_positions=12, end_symbol=end)
        with torch.no_grad():
            model.length.outer.bias[-1] += 100
        memory = model.encode(pairs([11], [1]).source)
        assert model.length.predict(memory).tolist() == [longest]
        assert int(model.length.likely(memory, 5).max()) == longest


@pytest.mark.parametrize("quantile", [0.05, 0.3, 0.5, 0.9, 0.999999])
def test_a_quantile_is_the_shortest_length_that_is_seldom_exceeded(quantile):
    model = lvm()
    memory = model.encode(pairs([4, 1, 6, 2], [3, 5, 1, 4]).source)
    probabilities = model.length(memory).detach().softmax(-1)
    lengths = model.length.predict(memory, LengthChoice(quantile))
    for row in range(4):
        source = int(memory.mask[row].sum()) - 1
        total = 0.0
        for index in range(probabilities.size(1)):
            total += float(probabilities[row, index])
            if total >= quantile:
                break
        assert int(lengths[row]) == max(1, index - model.length.limit + source)
