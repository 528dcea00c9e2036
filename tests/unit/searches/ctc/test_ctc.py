"""Searches over alignments against enumeration of all outputs."""

from __future__ import annotations

import itertools
import math
import os
import subprocess

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies
from miniatures import ctc_beam, ctc_greedy, nat, tokens
from stage_server import python_code
from threads import in_threads

from workflow_src.decoding import compiled as shared
from workflow_src.decoding.ctc import collapse, slot_logits
from workflow_src.decoding.ngram import estimate
from workflow_src.decoding.slots import Row, certainty, probable, rows_of_arrays, rows_of_tensors
from workflow_src.errors import ConfigError, InputError
from workflow_src.searches.ctc_beam import CtcBeamSettings, compiled
from workflow_src.searches.ctc_beam.compiled import PrefixBeam
from workflow_src.searches.ctc_beam.search import beam_of
from workflow_src.types import EOS

SIZE = 7
SOURCE = tokens([1, 2, 1], SIZE, end=True)
EVERYTHING = {"beam": 10**6, "min_ratio": 0.0}


@pytest.fixture(scope="module")
def model():
    return nat(target_size=SIZE, source_size=SIZE, upsample=1.5, seed=4)


@pytest.fixture(scope="module")
def language_model():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 5, 40)
    return estimate(generator.integers(3, SIZE - 1, lengths.sum()), np.cumsum([0, *lengths]), SIZE, 3)


def outputs(model, row: int) -> dict[tuple[int, ...], float]:
    """log p of every output of a sentence, over all alignments of allowed symbols."""
    logits, mask = slot_logits(model, model.encode(SOURCE))
    scores = logits[row, mask[row]].log_softmax(-1)
    by_output: dict[tuple[int, ...], list[float]] = {}
    for path in itertools.product(range(3, SIZE), repeat=len(scores)):
        value = sum(float(scores[slot, symbol]) for slot, symbol in enumerate(path))
        by_output.setdefault(tuple(collapse(list(path), model.blank)), []).append(value)
    return {output: math.log(sum(map(math.exp, values))) for output, values in by_output.items()}


def test_greedy_puts_out_the_best_symbol_of_every_slot(model):
    logits, mask = slot_logits(model, model.encode(SOURCE))
    hypotheses = ctc_greedy(model, SOURCE)
    for row in range(len(SOURCE)):
        path = logits[row, mask[row]].argmax(-1)
        assert hypotheses.tokens[row] == collapse(path.tolist(), model.blank)
        path_scores = logits[row, mask[row]].log_softmax(-1).gather(-1, path[:, None])
        assert hypotheses.scores[row] == pytest.approx(float(path_scores.mean()), abs=1e-9)


def test_collapsing_keeps_what_is_no_blank_and_differs_from_the_slot_before():
    slots = torch.randint(0, 4, (50, 9), generator=torch.Generator().manual_seed(0))
    lengths = torch.randint(1, 10, (50,), generator=torch.Generator().manual_seed(1))
    keep_slot = slots != 3
    keep_slot[:, 1:] &= slots[:, 1:] != slots[:, :-1]
    for row, keep, length in zip(slots, keep_slot, lengths.tolist(), strict=True):
        assert collapse(row[:length].tolist(), 3) == row[:length][keep[:length]].tolist()
    assert collapse([1, 1, 3, 1, 2, 2, 3, 3], 3) == [1, 1, 2]


@pytest.mark.parametrize("penalty", [1.5, 3.0])
def test_a_blank_penalty_is_taken_off_the_logits_of_the_blank(model, penalty):
    logits, mask = slot_logits(model, model.encode(SOURCE))
    lowered = logits.clone()
    lowered[..., model.blank] -= penalty
    hypotheses = ctc_greedy(model, SOURCE, penalty)
    paths = [lowered[row, mask[row]].argmax(-1).tolist() for row in range(len(SOURCE))]
    assert hypotheses.tokens == [collapse(path, model.blank) for path in paths]
    for row, path in enumerate(paths):
        path_scores = lowered[row, mask[row]].log_softmax(-1)[torch.arange(len(path)), path]
        assert hypotheses.scores[row] == pytest.approx(float(path_scores.mean()), abs=1e-9)
    # The penalty changes outputs.
    assert paths != [logits[row, mask[row]].argmax(-1).tolist() for row in range(len(SOURCE))]


@pytest.mark.parametrize("with_model", [False, True])
def test_an_unlimited_beam_finds_the_best_of_all_outputs(model, language_model, with_model):
    settings = CtcBeamSettings(**EVERYTHING, lm_weight=0.7, word_bonus=0.9)
    hypotheses = ctc_beam(model, SOURCE, settings, language_model if with_model else None)
    for row in range(len(SOURCE)):
        scores = {
            output: value + 0.9 * len(output) + (0.7 * language_model.log_probability(output) if with_model else 0)
            for output, value in outputs(model, row).items()
        }
        best = max(scores, key=scores.__getitem__)
        assert tuple(hypotheses.tokens[row]) == best
        assert hypotheses.scores[row] == pytest.approx(scores[best], abs=1e-9)
        assert hypotheses.candidates[row] == len(scores)
        ranked, order = hypotheses.ranked()[row], sorted(scores, key=scores.__getitem__, reverse=True)
        assert [tuple(words) for _, words in ranked] == order
        assert [score for score, _ in ranked] == pytest.approx([scores[output] for output in order], abs=1e-9)


def test_a_beam_of_one_over_certain_slots_is_greedy(model):
    settings = CtcBeamSettings(beam=1, min_ratio=0.999)
    assert ctc_beam(model, SOURCE, settings).tokens == ctc_greedy(model, SOURCE).tokens


def test_many_slots_do_not_underflow():
    model = nat(target_size=SIZE, source_size=SIZE, upsample=8, seed=4, max_positions=4000)
    source = tokens([300], SIZE, end=True)
    hypotheses = ctc_beam(model, source, CtcBeamSettings(beam=2, min_ratio=0.0))
    assert math.isfinite(hypotheses.scores[0]) and hypotheses.scores[0] < -300


def textbook(row, blank, width, language_model, lm_weight, word_bonus):
    """Prefix beam search as papers write it: prefixes are tuples, every score is computed from its own words."""

    def score(prefix, mass, ended):
        total = math.log(mass) + word_bonus * len(prefix)
        if language_model is not None:
            state = language_model.start
            for word in (*prefix, EOS) if ended else prefix:
                value, state = language_model.step(state, word)
                total += lm_weight * value
        return total

    beam = {(): (1.0, 0.0)}
    for slot in slots_of(row):
        p_blank = slot.get(blank, 0.0)
        after: dict[tuple[int, ...], list[float]] = {}
        for prefix, (ended, open_) in beam.items():
            after.setdefault(prefix, [0.0, 0.0])[0] += (ended + open_) * p_blank
            for symbol, p in slot.items():
                if symbol == blank:
                    continue
                repeated = bool(prefix) and prefix[-1] == symbol
                after.setdefault((*prefix, symbol), [0.0, 0.0])[1] += (ended if repeated else ended + open_) * p
                if repeated:
                    after[prefix][1] += open_ * p
        ranked = [(score(prefix, sum(masses), False), prefix) for prefix, masses in after.items() if sum(masses)]
        beam = {prefix: tuple(after[prefix]) for _, prefix in sorted(ranked, reverse=True)[:width]}
    return sorted(((score(prefix, sum(masses), True), prefix) for prefix, masses in beam.items()), reverse=True)


def slots_of(row: Row) -> list[dict[int, float]]:
    """By slot, the probability of each symbol relative to the best."""
    ends = np.cumsum(row.counts)
    entries = list(zip(row.symbols.tolist(), np.exp(row.values).tolist(), strict=True))
    return [dict(entries[end - count : end]) for count, end in zip(row.counts.tolist(), ends.tolist(), strict=True)]


def row_of(slots) -> Row:
    """A row of slots, each symbols with their values; symbols ascend, as they do in logits."""
    ascending = [sorted(slot) for slot in slots]
    symbols = [symbol for slot in ascending for symbol, _ in slot]
    values = [value for slot in ascending for _, value in slot]
    counts = [len(slot) for slot in slots]
    return Row(np.array(counts, np.int64), np.array(symbols, np.int64), np.array(values, np.float64), 0.0)


def random_row(generator, count):
    """Slots with the blank alone, one certain symbol, the same once more, and several with and without a blank."""
    slots = []
    for _ in range(count):
        symbols = generator.permutation(np.arange(3, SIZE - 1))[: generator.integers(0, 4)].tolist()
        values = [0.0, *(-generator.exponential(2.0, 4))]
        order = [SIZE - 1, *symbols] if not symbols or generator.random() < 0.5 else symbols
        generator.shuffle(order)
        slots.append(list(zip(order, values, strict=False)))
        if len(order) == 1 and generator.random() < 0.3:
            # Of two equal slots with a choice, outputs would be exactly as probable as others.
            slots.append(slots[-1])
    return row_of(slots)


class OtherModel:
    """A language model that is no n-gram model, such as that of a plug-in; its states are opaque."""

    def __init__(self, model):
        self.model, self.start = model, [model.start]

    def step(self, state, word):
        value, after = self.model.step(state[0], word)
        return value, [after]


@pytest.fixture
def numba():
    return pytest.importorskip("numba", reason="needs numba (the extra fast)")


@pytest.mark.parametrize("width", [1, 5, 30])
@pytest.mark.parametrize(("kind", "fast"), [("none", False), ("none", True), ("n-gram", True), ("other", False)])
def test_a_pruned_beam_keeps_what_the_textbook_keeps(language_model, width, kind, fast):
    generator, kinds = np.random.default_rng(width), set()
    model = {"none": None, "n-gram": language_model, "other": OtherModel(language_model)}[kind]
    arguments = SIZE - 1, width
    beam = PrefixBeam(*arguments, None, model, 0.6, 0.8, fast)
    for _ in range(40):
        row = random_row(generator, 12)
        actual, expected = beam(row), textbook(row, *arguments, model, 0.6, 0.8)
        assert [output for _, output in actual] == [output for _, output in expected]
        assert [score for score, _ in actual] == pytest.approx([score for score, _ in expected], abs=1e-9)
        kinds |= {(min(len(slot.keys() - {SIZE - 1}), 2), SIZE - 1 in slot) for slot in slots_of(row)}
    assert kinds == {(0, True), (1, False), (1, True), (2, False), (2, True)}


@pytest.fixture(scope="module")
def language_models(language_model):
    """By order: none, of single words alone, and others."""
    drawn = np.random.default_rng(5).integers(3, SIZE - 1, 60)
    models = {order: estimate(drawn, np.arange(0, 61, 4), SIZE, order) for order in (1, 2, 4)}
    return {0: None, 3: language_model, **models}


@hypothesis.settings(
    max_examples=100, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
    slots=strategies.lists(
        # Values of few kinds, so that prefixes are exactly as good as others; and such that probabilities vanish.
        strategies.dictionaries(
            strategies.integers(3, SIZE - 1), strategies.sampled_from([0.0, -0.5, -1.0, -30.0, -400.0]), min_size=1
        ),
        max_size=14,
    ),
    times=strategies.integers(1, 8),
    width=strategies.sampled_from([1, 2, 3, 7, 10**6]),
    threshold=strategies.sampled_from([None, 1e-6, 0.5, 3.0, 40.0]),
    order=strategies.sampled_from([0, 1, 2, 3, 4]),
    weights=strategies.sampled_from([(0.0, 0.0), (0.5, 0.0), (0.4, 2.5), (1.0, -1.0)]),
)
def test_the_compiled_search_finds_what_plain_python_finds(
    numba, language_models, slots, times, width, threshold, order, weights
):
    # The best symbol of a slot has the value 0. Unlimited beams double with every slot.
    all_slots = [{symbol: value - max(slot.values()) for symbol, value in slot.items()} for slot in slots]
    all_slots = all_slots[:7] if width == 10**6 else all_slots * times
    arguments = SIZE - 1, width, threshold, language_models[order], *weights
    row = row_of([list(slot.items()) for slot in all_slots])
    fast, plain = PrefixBeam(*arguments), PrefixBeam(*arguments, fast=False)
    actual, expected = fast(row), plain(row)
    assert [output for _, output in actual] == [output for _, output in expected]
    assert [score for score, _ in actual] == pytest.approx([score for score, _ in expected], abs=1e-9)
    assert fast.best(row) == (actual[0], len(actual))
    assert plain.best(row) == (expected[0], len(expected))


def test_slots_of_very_many_symbols_are_sorted(numba, language_model):
    generator = np.random.default_rng(0)
    # Of so few values that many symbols are as probable as others.
    logits = generator.integers(0, 40, (6, 5 * compiled.FEW)).astype(np.float32)
    arguments = len(logits[0]) - 1, 20, None, language_model, 0.3, 1.0
    fast, plain = PrefixBeam(*arguments), PrefixBeam(*arguments, fast=False)
    row = Row(*fast.words.probable(logits, 0.0), 0.0)
    assert all(map(np.array_equal, row[:3], probable(logits, 0.0)))
    assert [output for _, output in fast(row)] == [output for _, output in plain(row)]
    assert [score for score, _ in fast(row)] == pytest.approx([score for score, _ in plain(row)], abs=1e-9)


@pytest.mark.parametrize("kind", ["n-gram", "other"])
def test_what_is_remembered_changes_nothing(language_model, monkeypatch, kind):
    """Results do not depend on earlier sentences, even where continuations replace each other and states are
    forgotten."""
    model = language_model if kind == "n-gram" else OtherModel(language_model)
    generator, arguments = np.random.default_rng(7), (SIZE - 1, 6, None, model, 0.6, 0.8)
    rows = [random_row(generator, 8) for _ in range(20)]
    alone = [PrefixBeam(*arguments)(row) for row in rows]
    monkeypatch.setattr(shared, "CACHED", 4)
    monkeypatch.setattr(shared, "STATES", 5)
    beam = PrefixBeam(*arguments)
    assert [beam(row) for row in rows] == alone and len(beam.words.cache[0]) == 4


@pytest.mark.parametrize("kind", ["n-gram", "other"])
def test_threads_share_what_is_remembered(language_model, monkeypatch, kind):
    model = language_model if kind == "n-gram" else OtherModel(language_model)
    generator, arguments = np.random.default_rng(3), (SIZE - 1, 4, None, model, 0.6, 0.8, False)
    rows = [random_row(generator, 10) for _ in range(16)]
    alone = [PrefixBeam(*arguments)(row) for row in rows]
    monkeypatch.setattr(shared, "CACHED", 4)
    monkeypatch.setattr(shared, "STATES", 5)
    beam = PrefixBeam(*arguments)
    outputs: dict[int, list] = {}

    def work(first: int) -> None:
        for number in (*range(first, 16, 4), *range(first, 16, 4)):
            outputs[number] = beam(rows[number])

    in_threads(work, 4, 1e-6)
    assert [outputs.get(number) for number in range(16)] == alone


@pytest.fixture
def chosen(monkeypatch):
    """The output of the search that is chosen, without its cache, and whether it is compiled."""

    def choose(model):
        shared.usable.cache_clear()
        beam_of.cache_clear()
        settings = CtcBeamSettings(beam=3, language_model=model and "lm", lm_weight=0.37)
        beam = beam_of(SIZE - 1, settings, model)
        tried = []
        monkeypatch.setattr(shared, "probable", lambda *_: tried.append(True) or 0)
        beam.words.probable(np.zeros((1, SIZE), np.float32), 0.5)
        monkeypatch.undo()
        return bool(tried)

    yield choose
    shared.usable.cache_clear()
    beam_of.cache_clear()


def test_the_compiled_search_serves_n_gram_models_and_none(numba, chosen, language_model, caplog):
    assert chosen(language_model) and chosen(None)
    assert not chosen(CountingModel(language_model))
    assert not caplog.records


def test_nothing_is_compiled_for_another_language_model(numba, chosen, language_model, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(compiled, "try_out", lambda: pytest.fail("compiled"))
        assert not chosen(OtherModel(language_model))


WITHOUT = """
import sys
import numpy as np
sys.modules["numba"] = None
from workflow_src.searches.ctc_beam.compiled import PrefixBeam
from workflow_src.decoding.compiled import NUMBA
from workflow_src.decoding.slots import Row
beam = PrefixBeam(6, 3, None, None, 0.0, 0.5)
logits = np.random.default_rng(1).normal(size=(9, 7)).astype(np.float32)
print(NUMBA, [words for _, words in beam(Row(*beam.words.probable(logits, 0.05), 0.0))])
"""


def test_the_search_runs_without_numba():
    process = subprocess.run(python_code(WITHOUT), capture_output=True, text=True)
    logits = np.random.default_rng(1).normal(size=(9, 7)).astype(np.float32)
    outputs = PrefixBeam(6, 3, None, None, 0.0, 0.5)(Row(*probable(logits, 0.05), 0.0))
    assert process.stdout == f"None {[words for _, words in outputs]}\n" and not process.stderr


@pytest.mark.parametrize("failure", [OSError("libLLVM.so: no such file"), EOFError("Ran out of input")])
def test_python_serves_where_numba_fails_and_says_so(numba, chosen, monkeypatch, caplog, failure):
    def fail():
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(compiled, "try_out", fail)
        assert not chosen(None)
    (record,) = caplog.records
    assert f"Numba cannot be used ({type(failure).__name__}: {failure}), and searches take longer" in record.message


@pytest.mark.parametrize("cached", [True, False])
def test_users_read_that_compiling_takes_a_while(numba, chosen, monkeypatch, caplog, cached, tmp_path):
    compiled_code = tmp_path / "compiled.nbi"
    compiled_code.touch()
    compiled.try_out()
    assert shared.cached_files(compiled.search)
    with caplog.at_level("INFO"):
        monkeypatch.setattr(shared, "cached_files", lambda _: [compiled_code] * cached)
        assert chosen(None)
    assert [record.message for record in caplog.records] == (
        [] if cached else ["compiling a search; this takes some ten seconds, once"]
    )


@pytest.mark.parametrize("fast", [False, True])
def test_rows_that_leave_the_range_of_numbers_are_refused(fast):
    row = row_of([[(3, 0.0), (SIZE - 1, value)] for value in (-200.0, -600.0, -1.0)])
    with pytest.raises(ConfigError) as refused:
        PrefixBeam(SIZE - 1, 1, None, None, 0.0, -900.0, fast)(row)
    assert refused.value.setting == "lm_weight" and "word_bonus" in refused.value.hint


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_slots_without_a_symbol_are_refused(value):
    logits = torch.zeros(1, 3, SIZE)
    logits[0, 1] = value
    with pytest.raises(InputError) as refused:
        rows_of_tensors(logits, torch.tensor([3]), 0.1, False)
    assert refused.value.subject == "the model"
    for fast in (False, True):
        beam = PrefixBeam(SIZE - 1, 1, None, None, 0.0, 0.0, fast)
        with pytest.raises(InputError) as refused:
            rows_of_arrays(logits.numpy(), np.array([3]), 0.1, False, beam.words.probable)
        assert refused.value.subject == "the model"


BOUNDS = """
import numpy as np
from workflow_src.decoding.ngram import estimate
from workflow_src.searches.ctc_beam.compiled import PrefixBeam
from workflow_src.decoding.slots import Row
draw, size = np.random.default_rng(3), 7
model = estimate(draw.integers(3, size - 1, 60), np.arange(0, 61, 4), size, 3)
for number in range(1000):
    counts = draw.integers(1, 5, draw.integers(1, 8))
    symbols = np.concatenate([np.sort(draw.permutation(np.arange(3, size))[:count]) for count in counts])
    values = -draw.choice([0.5, 1.0, 30.0], len(symbols))
    values[np.cumsum([0, *counts[:-1]])] = 0.0
    threshold = (None, 0.5, 3.0)[number % 3]
    about = size - 1, (1, 2, 5, 10**6)[number % 4], threshold, (None, model)[number % 2], 0.4, 0.5
    row = Row(counts, symbols, values, 0.0)
    plain = PrefixBeam(*about, fast=False)
    assert [words for _, words in PrefixBeam(*about)(row)] == [words for _, words in plain(row)]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("numba")
def test_no_array_is_read_or_written_beyond_its_end(tmp_path):
    """Numba checks bounds only if this is set at compilation; optimising would take longer than the search."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    process = subprocess.run(python_code(BOUNDS), env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert any(tmp_path.rglob("*.nbi"))


@pytest.mark.parametrize("threshold", [1e-6, 1.0, 1e3])
def test_a_threshold_drops_prefixes_and_not_the_probability_of_those_that_stay(model, language_model, threshold):
    fields = {**EVERYTHING, "lm_weight": 0.3, "word_bonus": 0.5}
    unlimited = ctc_beam(model, SOURCE, CtcBeamSettings(**fields), language_model)
    hypotheses = ctc_beam(model, SOURCE, CtcBeamSettings(**fields, beam_threshold=threshold), language_model)
    if threshold == 1e3:
        assert hypotheses == unlimited
    else:
        assert sum(hypotheses.candidates) < sum(unlimited.candidates)
        # Dropped prefixes take alignments with them: scores can only fall.
        assert all(a <= b + 1e-9 for a, b in zip(hypotheses.scores, unlimited.scores, strict=True))
    if threshold == 1e-6:
        assert hypotheses.candidates == [1] * len(SOURCE)


@pytest.mark.parametrize("min_ratio", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("fast", [False, True])
def test_symbols_of_tensors_are_those_of_arrays(model, min_ratio, fast):
    logits = slot_logits(model, model.encode(SOURCE))[0][0].detach()
    words = PrefixBeam(model.blank, 1, None, None, 0.0, 0.0, fast).words
    counts, symbols, values = words.probable(logits.numpy(), min_ratio)
    (row,) = rows_of_tensors(logits[None], torch.tensor([len(logits)]), min_ratio, True)
    assert all(map(np.array_equal, row[:3], (counts, symbols, values)))
    ratios = (logits - logits.amax(-1, keepdim=True)).exp()
    for slot, slot_ratios in zip(slots_of(row), ratios, strict=True):
        expected = {symbol: p for symbol, p in enumerate(slot_ratios.tolist()) if p >= min_ratio and p > 0}
        assert slot == pytest.approx(expected)
    assert certainty(logits.numpy()) == pytest.approx(row.base, abs=1e-9)
    assert certainty(logits.numpy()) == pytest.approx(float((logits.amax(-1) - logits.logsumexp(-1)).sum()), abs=1e-9)


class CountingModel:
    """A language model that counts its scores of words, without ends, which are not cached."""

    def __init__(self, model):
        self.model = model
        self.start = model.start
        self.times = 0

    def step(self, state, word):
        self.times += word != EOS
        return self.model.step(state, word)


def test_what_words_add_is_remembered_from_batch_to_batch(model, language_model):
    source, settings = tokens([4, 6], SIZE, end=True), CtcBeamSettings(beam=4, language_model="lm", lm_weight=0.5)
    counting = CountingModel(language_model)
    first = ctc_beam(model, source, settings, counting)
    times = counting.times
    assert ctc_beam(model, source, settings, counting) == first and counting.times == times > 0
    # Another weight or model clears the cache; results stay the same.
    heavier = settings.model_copy(update={"lm_weight": 2.0})
    assert ctc_beam(model, source, heavier, counting) == ctc_beam(model, source, heavier, CountingModel(language_model))
    assert ctc_beam(model, source, settings, counting) == first
