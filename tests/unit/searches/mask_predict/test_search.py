"""Mask-predict against the formula: worked by hand, and by a loop over single places in plain Python."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from miniatures import cmlm, one, pairs, searched, transformer

from workflow_src.decoding import search as module
from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.searches.mask_predict import MaskPredictSettings
from workflow_src.searches.mask_predict.search import least_confident

MASK = 10
BATCH = pairs([4, 1, 6, 9, 3], [1] * 5)
MODEL = cmlm(seed=4)


def search(model=MODEL, source=BATCH.source, trace=False, **fields):
    return searched({"model": model}, source, MaskPredictSettings(**fields), trace=trace)


@torch.no_grad()
def by_hand(model, source, length: int, iterations: int, until: int = 100) -> tuple[list[int], list[float]]:
    """Subwords and log-probabilities of one sentence without padding, after the first `until` passes."""
    memory, words, chances = model.encode(source), [MASK] * length, [0.0] * length
    for t in range(min(until, iterations)):
        count = length if t == 0 else math.floor(length * (iterations - t) / iterations)
        worst = sorted(range(length), key=lambda place: (chances[place], place))[:count] if t else range(length)
        masked = torch.tensor([[MASK if place in worst else word for place, word in enumerate(words)]])
        states = model.states(memory, masked, masked != 0)[0]
        logits = (states @ model.target_embedding.weight.T + model.output_bias)[:, 3:MASK].log_softmax(-1)
        for place in worst:
            words[place], chances[place] = int(logits[place].argmax()) + 3, float(logits[place].max())
    return words, chances


@torch.no_grad()
def likely(model, source, count: int) -> list[int]:
    scores, words = model.length(model.encode(source))[0].tolist(), source.size(1) - 1
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return list(dict.fromkeys(max(1, words + place - 4) for place in order))[:count]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 10])
def test_outputs_and_scores_are_those_of_a_loop_over_single_places(iterations, beam):
    batched = search(iterations=iterations, length_beam=beam)
    changed = 0
    for row in range(5):
        source = one(BATCH, row).source
        candidates = {}
        for length in likely(MODEL, source, beam):
            words, chances = by_hand(MODEL, source, length, iterations)
            candidates[tuple(words)] = sum(chances) / length
            changed += words != by_hand(MODEL, source, length, 1)[0]
        best = max(candidates, key=candidates.__getitem__)
        assert tuple(batched.tokens[row]) == best
        assert batched.scores[row] == pytest.approx(candidates[best], abs=1e-9)
    # Later passes do change something, or this would show nothing.
    assert changed or iterations == 1


def test_a_larger_length_penalty_prefers_longer_outputs_and_scores_are_the_formula():
    lengths = []
    for penalty in (0.0, 1.0, 1.5, 3.0):
        batched = search(iterations=3, length_beam=4, length_penalty=penalty)
        for row in range(5):
            source, scores = one(BATCH, row).source, {}
            for length in likely(MODEL, source, 4):
                words, chances = by_hand(MODEL, source, length, 3)
                scores[tuple(words)] = sum(chances) / length**penalty
            best = max(scores, key=scores.__getitem__)
            assert tuple(batched.tokens[row]) == best
            assert batched.scores[row] == pytest.approx(scores[best], abs=1e-9)
        lengths.append([len(row) for row in batched.tokens])
    # Word for word: of each sentence no output is shorter than with the penalty before.
    for before, after in itertools.pairwise(lengths):
        assert all(shorter <= longer for shorter, longer in zip(before, after, strict=True))
    assert sum(lengths[0]) < sum(lengths[1]) < sum(lengths[-1])


@pytest.mark.parametrize(
    "fields",
    [{}, {"lengthening": 0.5}, {"length_quantile": 0.8}, {"lengths": 4}, {"lengths": 4, "length_penalty": 2.0}],
)
def test_one_iteration_is_one_argmax(fields):
    expected = searched({"model": MODEL}, BATCH.source, ArgmaxSettings(**fields))
    renamed = {"length_beam": fields.get("lengths", 1)} | {n: v for n, v in fields.items() if n != "lengths"}
    once = search(iterations=1, **renamed)
    assert once.tokens == expected.tokens and once.scores == pytest.approx(expected.scores, abs=1e-12)
    assert once.candidates == expected.candidates


def test_at_the_lengths_that_it_predicts_it_is_the_plain_search_and_at_others_a_loop_by_hand():
    with torch.no_grad():
        predicted = MODEL.length.predict(MODEL.encode(BATCH.source))
    settings = MaskPredictSettings(iterations=3, length_beam=1)
    plain = search(iterations=3, length_beam=1)
    at_predicted = searched({"model": MODEL}, BATCH.source, settings, lengths=predicted)
    assert at_predicted.tokens == plain.tokens and at_predicted.scores == pytest.approx(plain.scores, abs=1e-12)
    lengths = [2, 5, 1, 7, 4]
    at_others = searched({"model": MODEL}, BATCH.source, settings, lengths=torch.tensor(lengths))
    for row, length in enumerate(lengths):
        assert at_others.tokens[row] == by_hand(MODEL, one(BATCH, row).source, length, 3)[0]


@pytest.mark.parametrize("length_beam, lengths", [(1, torch.tensor([2, 5, 1, 7, 4])), (1, None), (3, None)])
def test_computing_fewer_sentences_together_changes_nothing(length_beam, lengths, monkeypatch):
    settings = MaskPredictSettings(iterations=3, length_beam=length_beam)
    together = searched({"model": MODEL}, BATCH.source, settings, trace=True, lengths=lengths)
    monkeypatch.setattr(module, "ROWS", 2)
    in_parts = searched({"model": MODEL}, BATCH.source, settings, trace=True, lengths=lengths)
    assert (in_parts.tokens, in_parts.traces) == (together.tokens, together.traces)
    assert in_parts.scores == pytest.approx(together.scores, abs=1e-12)
    assert in_parts.candidates == together.candidates and in_parts.steps == together.steps


class Scripted:
    """A model whose chances are written down: `table` has, for each pass and place, a word and its probability."""

    mask_symbol = MASK

    def __init__(self, table: list[list[tuple[int, float]]]):
        self.table, self.inputs = table, []
        self.length = SimpleNamespace(predict=lambda _memory, _choice: torch.tensor([len(table[0])]))

    def encode(self, _source):
        return SimpleNamespace(fixed=False)

    def hidden(self, memory, lengths):
        mask = torch.ones(1, int(lengths), dtype=torch.bool)
        return self.states(memory, torch.where(mask, MASK, 0), mask), mask

    def states(self, _memory, target, _mask):
        """One-hot rows over passes and places, so that logits can be looked up."""
        self.inputs.append(target[0].tolist())
        width, row = len(self.table[0]), len(self.inputs) - 1
        states = torch.zeros(1, width, len(self.table) * width, dtype=torch.float64)
        for place in range(width):
            states[0, place, row * width + place] = 1
        return states

    def logits(self, hidden):
        rows = []
        for word, chance in (cell for row in self.table for cell in row):
            # What is left goes to another word.
            row_logits = torch.full((11,), float("-inf"), dtype=torch.float64)
            row_logits[word], row_logits[9] = math.log(chance), math.log(1 - chance)
            rows.append(row_logits)
        return torch.stack(rows)[hidden.argmax(-1)]

    def output(self, symbols, _mask):
        return symbols


def test_a_case_worked_by_hand():
    """N = 5 and T = 3: floor(10 / 3) = 3 places are masked before the second pass, floor(5 / 3) = 1 before the third.

    The second pass sees places 1, 2 and 4 (counted from 0) masked, the least probable. It makes them more probable than
    place 0, which keeps the 0.7 of the first pass, whatever the second says of it, and is masked before the third.
    """
    table = [
        [(3, 0.7), (3, 0.6), (4, 0.51), (5, 0.9), (6, 0.55)],
        [(8, 0.99), (7, 0.8), (8, 0.75), (8, 0.99), (6, 0.95)],
        [(4, 0.65), (8, 0.99), (3, 0.99), (3, 0.99), (3, 0.99)],
    ]
    model = Scripted(table)
    result = search(model, torch.tensor([[5, 2]]), iterations=3, length_beam=1)
    assert model.inputs == [[MASK] * 5, [3, MASK, MASK, 5, MASK], [MASK, 7, 8, 5, 6]]
    assert result.tokens == [[4, 7, 8, 5, 6]]
    # The last probability counts, also where it is below the one before.
    expected = sum(math.log(p) for p in (0.65, 0.8, 0.75, 0.9, 0.95)) / 5
    assert result.scores[0] == pytest.approx(expected, abs=1e-12)


def test_passes_that_mask_nothing_are_not_computed():
    model = Scripted([[(3, 0.6), (4, 0.7)]] * 8)
    result = search(model, torch.tensor([[5, 2]]), iterations=8, length_beam=1)
    # floor(2 (8 - t) / 8) is 1 for t = 1 … 4 and 0 afterwards.
    assert len(model.inputs) == 5 and result.tokens == [[3, 4]]


def test_a_trace_has_what_every_pass_put_out_at_the_length_that_won(monkeypatch):
    """Whatever is decoded together: what pass t of T puts out is worked out by a loop over single places."""
    for rows in (1000, 6):
        monkeypatch.setattr(module, "ROWS", rows)
        traced = search(iterations=4, length_beam=3, trace=True)
        assert (
            len(traced.traces) == 4 and traced.traces[-1] == traced.tokens == search(iterations=4, length_beam=3).tokens
        )
        for row in range(5):
            length, source = len(traced.tokens[row]), one(BATCH, row).source
            expected = [by_hand(MODEL, source, length, 4, until)[0] for until in (1, 2, 3, 4)]
            assert [texts[row] for texts in traced.traces] == expected


def test_of_equal_chances_the_first_are_masked_and_padding_never_is():
    chances = torch.tensor([[-1.0, -2.0, -2.0, -2.0], [-1.0, -1.0, -9.0, -9.0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    chosen = least_confident(chances, mask, torch.tensor([2, 2]))
    assert chosen.tolist() == [[False, True, True, False], [True, True, False, False]]
    assert not least_confident(chances, mask, torch.tensor([0, 0])).any()


@torch.no_grad()
def test_a_rescorer_decides_among_lengths():
    teacher = transformer(13, 10, seed=2)
    settings = MaskPredictSettings(iterations=3, length_beam=4, rescorer="teacher")
    ranked = searched({"model": MODEL, "rescorer": teacher}, BATCH.source, settings)
    for row in range(5):
        source = one(BATCH, row).source
        scores = {}
        for length in likely(MODEL, source, 4):
            words = tuple(by_hand(MODEL, source, length, 3)[0])
            scores[words] = float(teacher.log_probabilities(source, torch.tensor([words])).sum()) / (length + 1)
        best = max(scores, key=scores.__getitem__)
        assert tuple(ranked.tokens[row]) == best and ranked.scores[row] == pytest.approx(scores[best], abs=1e-9)
    assert ranked.tokens != search(iterations=3, length_beam=4).tokens
