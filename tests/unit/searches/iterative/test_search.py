"""Refinement by passes against passes written out for one sentence, and stopping where an output repeats."""

from __future__ import annotations

import itertools

import pytest
import torch
from miniatures import inat, searched, tokens, transformer

from workflow_src.decoding.ranking import rescored
from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.searches.iterative_refinement import IterativeRefinementSettings
from workflow_src.spec import MODEL

LENGTHS = [4, 1, 6, 5, 3, 9, 2, 7]
SOURCE = tokens(LENGTHS, 13, end=True)
WIDE = torch.nn.functional.pad(SOURCE, (0, 3))


def search(model, source=SOURCE, trace=False, scored=True, rescorer=None, **settings):
    networks = {MODEL: model} | ({"rescorer": rescorer} if rescorer else {})
    if rescorer:
        settings["rescorer"] = "teacher"
    return searched(networks, source, IterativeRefinementSettings(**settings), scored, trace)


@torch.no_grad()
def by_hand(model, row: int, passes: int, length: int | None = None) -> tuple[list[list[int]], list[float]]:
    """Outputs of a sentence by itself after every pass, and their mean log-probabilities."""
    source = SOURCE[row : row + 1, : LENGTHS[row] + 1]
    memory = model.encode(source)
    lengths = model.length.predict(memory) if length is None else torch.tensor([length])
    outputs, scores = [], []
    for number in range(passes):
        if number == 0:
            hidden, mask = model.hidden(memory, lengths)
        else:
            hidden = model.refine(memory, torch.tensor([outputs[-1]]), hidden, mask)
        best, words = model.logits(hidden).log_softmax(-1).max(-1)
        outputs.append(words[0].tolist())
        scores.append(best.mean().item())
    return outputs, scores


@pytest.fixture(scope="module")
def model():
    return inat(seed=4)


@pytest.mark.parametrize("passes", [1, 2, 4, 7])
@pytest.mark.parametrize("source", [SOURCE, WIDE], ids=["plain", "padded"])
def test_passes_are_those_of_each_sentence_by_itself(model, passes, source):
    hypotheses = search(model, source, passes=passes)
    for row in range(len(LENGTHS)):
        outputs, scores = by_hand(model, row, passes)
        assert hypotheses.tokens[row] == outputs[-1]
        assert hypotheses.scores[row] == pytest.approx(scores[-1], abs=1e-10)
    assert hypotheses.steps == [passes] * len(LENGTHS)
    unscored = search(model, source, passes=passes, scored=False)
    assert unscored.tokens == hypotheses.tokens and unscored.scores == [0.0] * len(LENGTHS)


def test_one_pass_is_the_first_decoder_alone(model):
    hypotheses, expected = search(model, passes=1), searched({MODEL: model}, SOURCE, ArgmaxSettings())
    assert hypotheses.tokens == expected.tokens and hypotheses.scores == expected.scores
    # Which the second decoder has no part in.
    changed = inat(seed=4)
    with torch.no_grad():
        for parameter in changed.refiner.parameters():
            parameter.zero_()
    assert search(changed, passes=1).tokens == hypotheses.tokens
    assert search(changed, passes=2).tokens != search(model, passes=2).tokens


@pytest.mark.parametrize(("most", "patience"), [(2, 1), (3, 1), (3, 2), (10, 1), (10, 2), (10, 3)])
@pytest.mark.parametrize("source", [SOURCE, WIDE], ids=["plain", "padded"])
def test_adaptive_stopping_is_the_fixed_search_at_the_pass_where_it_stopped(model, most, source, patience):
    hypotheses = search(model, source, passes=most, stop="adaptive", patience=patience, trace=True)
    for row in range(len(LENGTHS)):
        outputs, scores = by_hand(model, row, most)
        repeats = [
            number
            for number in range(patience, most)
            if all(outputs[number] == outputs[number - back] for back in range(1, patience + 1))
        ]
        steps = repeats[0] + 1 if repeats else most
        assert hypotheses.steps[row] == steps
        assert hypotheses.tokens[row] == outputs[steps - 1]
        assert hypotheses.scores[row] == pytest.approx(scores[steps - 1], abs=1e-10)
        trace = [texts[row] for texts in hypotheses.traces]
        assert trace == outputs[:steps] + [outputs[steps - 1]] * (most - steps)
    # Sentences stop at different passes, so that the batch has shrunk more than once.
    assert len(set(hypotheses.steps)) > (2 if most > 3 else 0)


def test_repeats_with_another_output_between_them_are_not_in_a_row():
    network, row = inat(seed=1), 5
    outputs, _ = by_hand(network, row, 6)
    assert [output == before for before, output in itertools.pairwise(outputs)] == [False, True, False, True, True]
    assert search(network, passes=7, stop="adaptive", patience=2).steps[row] == 6


def test_an_output_that_repeats_is_that_of_all_later_passes_where_no_states_are_carried():
    network = inat(seed=4, carry_states=False)
    hypotheses = search(network, passes=12, stop="adaptive")
    stopped = [row for row, steps in enumerate(hypotheses.steps) if steps < 12]
    assert len(stopped) > 3 and len(set(hypotheses.steps)) > 1
    for row, passes in itertools.product(stopped, range(1, 13)):
        fixed = search(network, passes=passes).tokens[row]
        assert passes < hypotheses.steps[row] or fixed == hypotheses.tokens[row]


def test_a_trace_has_the_output_of_every_pass(model):
    hypotheses = search(model, passes=4, trace=True)
    assert len(hypotheses.traces) == 4 and hypotheses.traces[-1] == hypotheses.tokens
    for row in range(len(LENGTHS)):
        assert [texts[row] for texts in hypotheses.traces] == by_hand(model, row, 4)[0]


@pytest.mark.parametrize("stop", ["fixed", "adaptive"])
def test_several_lengths_are_refined_by_themselves_and_the_best_wins(model, stop):
    hypotheses = search(model, passes=4, lengths=3, stop=stop, trace=True)
    for row in range(len(LENGTHS)):
        source = SOURCE[row : row + 1, : LENGTHS[row] + 1]
        with torch.no_grad():
            lengths = model.length.likely(model.encode(source), 3)[0].tolist()
        candidates = []
        for length in lengths:
            outputs, scores = by_hand(model, row, 4, length)
            steps = 4
            if stop == "adaptive":
                steps = next((n + 1 for n in range(1, 4) if outputs[n] == outputs[n - 1]), 4)
            candidates.append((scores[steps - 1], outputs[steps - 1], steps, outputs[:steps]))
        best = max(candidates)
        assert hypotheses.tokens[row] == best[1] and hypotheses.scores[row] == pytest.approx(best[0], abs=1e-10)
        assert hypotheses.steps[row] == max(steps for _, _, steps, _ in candidates)
        trace = [texts[row] for texts in hypotheses.traces]
        assert trace == best[3] + [best[1]] * (4 - best[2])


def test_a_rescorer_ranks_lengths(model):
    teacher = transformer(seed=2)
    hypotheses = search(model, passes=2, lengths=4, rescorer=teacher, scored=False)
    for row in range(len(LENGTHS)):
        source = SOURCE[row : row + 1, : LENGTHS[row] + 1]
        with torch.no_grad():
            lengths = model.length.likely(model.encode(source), 4)[0].tolist()
            outputs = [by_hand(model, row, 2, length)[0][-1] for length in lengths]
            (ranked,) = rescored(teacher, source, [{tuple(output): 0.0 for output in outputs}])
        best = max(ranked, key=ranked.__getitem__)
        assert hypotheses.tokens[row] == list(best) and hypotheses.scores[row] == pytest.approx(ranked[best], abs=1e-10)


def test_more_lengths_than_there_are_classes(model):
    """The head has nine classes of lengths."""
    assert search(model, passes=2, lengths=50).tokens == search(model, passes=2, lengths=9).tokens


def test_lengths_can_be_longer(model):
    lengths = [len(row) for row in search(model, passes=2).tokens]
    longer = [len(row) for row in search(model, passes=2, lengthening=1.0).tokens]
    assert longer == [length + words + 2 for length, words in zip(lengths, LENGTHS, strict=True)]
    some = search(model, passes=2, length_quantile=0.999)
    assert sum(map(len, some.tokens)) > sum(lengths)
