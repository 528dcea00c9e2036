"""Greedy and beam search in captured blocks against the eager searches; on pretended GPUs, and uncaptured on CPUs."""

from __future__ import annotations

import miniatures
import pytest
import torch
from miniatures import searched, seq2seq, transformer
from pretended_cuda import counted, pretended
from sessions import sentences, translated
from threads import in_threads

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.search import open_search, own_networks
from workflow_src.decoding.settings import RESCORER
from workflow_src.engines import captured_steps
from workflow_src.engines.captured_steps import BLOCK, CACHE
from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.engines.session import KEPT_SEARCHES
from workflow_src.spec import MODEL

CPU = torch.device("cpu")


def peaked(seed: int = 5, end: float = 0.0, **settings):
    """A model whose outputs have many lengths."""
    return miniatures.peaked(transformer(13, 11, seed=seed, **settings), end)


def settings_of(search: str, **fields):
    return registry.searches()[search].settings(**fields)


SEARCHES = {
    "greedy": settings_of("greedy"),
    "greedy, short": settings_of("greedy", max_length_ratio=0.01),
    "beam": settings_of("beam", beam=4),
    "beam, one": settings_of("beam", beam=1),
    "beam, wider than the vocabulary": settings_of("beam", beam=13, length_penalty=0.6),
    "beam, short": settings_of("beam", beam=3, length_penalty=0.0, max_length_ratio=0.01),
}


@torch.no_grad()
def eager(model, sources, settings, **roles):
    return searched({MODEL: model, **roles}, pad(sources, eos=True), settings)


def assert_same(actual, expected):
    assert actual.tokens == expected.tokens
    assert actual.scores == pytest.approx(expected.scores, abs=1e-9)
    if expected.ranked is not None:
        for ranked, reference in zip(actual.ranked(), expected.ranked(), strict=True):
            assert [words for _, words in ranked] == [words for _, words in reference]
            assert [score for score, _ in ranked] == pytest.approx([score for score, _ in reference], abs=1e-9)


@pytest.mark.parametrize(("name", "norm"), [*((name, "post") for name in SEARCHES), ("beam", "pre")])
def test_outputs_are_those_of_eager_searches(name, norm):
    """Of batches of several sizes, whose sentences end in different blocks; also beyond the first cache."""
    model, settings, sources = peaked(norm=norm), SEARCHES[name], sentences(24)
    engine = CapturedSearches({"transformer": model}, CPU)
    lengths = set()
    for batch in (sources, *([source] for source in sources[:4]), sources[:5], sources[5:10]):
        expected = eager(model, batch, settings)
        assert_same(translated(engine, batch, settings, scored=True), expected)
        lengths |= {len(words) for words in expected.tokens}
    if "short" not in name:
        assert len({length // BLOCK for length in lengths}) > 1 and max(lengths) > CACHE


@pytest.mark.parametrize("name", ["greedy", "beam"])
@pytest.mark.parametrize("words", [15, 40])
def test_the_cpu_waits_once_a_block(name, words):
    model = peaked(end=-1000.0)
    source, settings = [5] * ((words - 10) // 2), SEARCHES[name]
    ratio = (words - 10 + 0.5) / max(1, len(source))
    settings = settings.model_copy(update={"max_length_ratio": ratio})
    source = source or [5]
    with pretended():
        engine = CapturedSearches({"transformer": model.cuda()}, torch.device("cuda"))
        translated(engine, [source], settings)
        with counted() as counts:
            hypotheses = translated(engine, [source], settings)
    (written,) = map(len, hypotheses.tokens)
    whole, remaining = divmod(written + 1, BLOCK)
    # The last positions are one block of a power of two.
    assert counts["synchronisations"] == whole + bool(remaining)
    assert counts["graph launches"] == 1 + whole + bool(remaining)


def test_an_output_may_be_empty_or_as_long_as_there_are_positions():
    for end, ratio, expected in ((1000.0, 2.0, [0, 0]), (-1000.0, 50.0, [20, 20])):
        # The last block goes on behind the positions.
        model = peaked(end=end, max_positions=21)
        for name in ("greedy", "beam"):
            settings = SEARCHES[name].model_copy(update={"max_length_ratio": ratio})
            sources = [[5] * 19, [6, 7]]
            hypotheses = translated(CapturedSearches({"transformer": model}, CPU), sources, settings, scored=True)
            assert [len(words) for words in hypotheses.tokens] == expected
            assert_same(hypotheses, eager(model, sources, settings))


def test_one_program_serves_all_lengths_of_its_buckets():
    model, settings = peaked(end=-1000.0), settings_of("greedy", max_length_ratio=1e-6)
    engine = CapturedSearches({"transformer": model}, CPU)
    for length in range(1, 8):
        translated(engine, [[5] * length], settings)
    # The source, a block of eight positions and one of four.
    assert len(engine._steps._programs) == 3


def test_programs_and_memory_are_bounded(monkeypatch):
    monkeypatch.setattr(captured_steps, "PROGRAMS", 6)
    model, sources = peaked(), sentences(12)
    engine = CapturedSearches({"transformer": model}, CPU)
    for name in ("greedy", "beam"):
        for size in (1, 2, 4, 12):
            assert_same(
                translated(engine, sources[:size], SEARCHES[name], scored=True),
                eager(model, sources[:size], SEARCHES[name]),
            )
            assert len(engine._steps._programs) <= 6
    largest = {dtype: len(memory) for dtype, memory in engine._steps._memory.items()}
    for penalty in range(KEPT_SEARCHES):
        # Other ranking shares the programs.
        translated(engine, sources, settings_of("beam", beam=4, length_penalty=penalty / 4))
    for ratio in range(KEPT_SEARCHES):
        translated(engine, [[5, 6]], settings_of("greedy", max_length_ratio=1.0 + ratio))
    assert {dtype: len(memory) for dtype, memory in engine._steps._memory.items()} == largest
    assert len({shape[0] for shape in engine._steps._states}) <= KEPT_SEARCHES


def test_a_rescorer_ranks_the_hypotheses():
    model, rescorer, sources = peaked(), transformer(13, 11, seed=8), sentences(6)
    settings = settings_of("beam", beam=4, rescorer="other", rescorer_weight=0.5)
    engine = CapturedSearches({"transformer": model}, CPU)
    networks = {MODEL: model, RESCORER: rescorer}
    actual = translated(engine, sources, settings, scored=True, networks=networks)
    assert_same(actual, eager(model, sources, settings, **{RESCORER: rescorer}))
    assert actual.tokens != eager(model, sources, settings_of("beam", beam=4)).tokens


def test_a_model_without_steps_of_fixed_shapes_is_computed_eagerly():
    model, sources = seq2seq(), sentences(5)
    engine = CapturedSearches({"seq2seq": model}, CPU)
    assert_same(translated(engine, sources, SEARCHES["beam"], scored=True), eager(model, sources, SEARCHES["beam"]))


@torch.no_grad()
@pytest.mark.parametrize("name", SEARCHES)
def test_steps_read_no_values(name):
    """Of tensors without values, as in a capture: reading one is an error."""
    settings = SEARCHES[name]
    model = peaked().to("meta")
    search = open_search(own_networks({"transformer": model}, settings), settings, True)
    source = torch.full((4, 16), 5, device="meta")
    state = search.begin(source, lambda memory: model.start_fixed(memory, search.width, CACHE))
    for _ in range(BLOCK):
        assert all(column.is_meta for column in search.step(state))


def test_threads_share_programs():
    model, settings, sources = peaked(), SEARCHES["beam"], sentences(5)
    engine = CapturedSearches({"transformer": model}, CPU)
    expected = [eager(model, [source], settings).tokens for source in sources]
    assert len(set(map(str, expected))) > 2
    wrong = []

    def work(number: int) -> None:
        for _ in range(4):
            if translated(engine, [sources[number]], settings).tokens != expected[number]:
                wrong.append(number)

    in_threads(work, len(sources))
    assert wrong == []
