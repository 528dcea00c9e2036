"""Drafts that are checked in captured passes, against the eager search; on pretended GPUs, and uncaptured on CPUs."""

from __future__ import annotations

import random

import pytest
import torch
from miniatures import dat, greedy, lvm, nat, ngram, peaked, searched, tagger, transformer
from pretended_cuda import counted, pretended
from sessions import translated

from workflow_src.data.batching import pad
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.search import open_search
from workflow_src.decoding.settings import DRAFTER, LM
from workflow_src.engines import captured_steps
from workflow_src.engines.captured_blocks import WIDTHS
from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.searches.verified import VerifiedSettings
from workflow_src.spec import MODEL

CPU = torch.device("cpu")
DRAFTERS = {
    "ctc": lambda: nat(13, 12),
    "latents": lambda: lvm(13, 11),
    "lstm": lambda: tagger(13, 11),
    "graph": lambda: dat(13, 11),
}


def verifier(seed: int = 5, end: float = 0.0, **settings):
    """A model whose outputs have many lengths."""
    return peaked(transformer(13, 11, seed=seed, **settings), end)


def settings(**fields) -> VerifiedSettings:
    return VerifiedSettings(drafter="drafter", **fields)


def sentences(number: int = 12, longest: int = 20, seed: int = 1) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(3, 13) for _ in range(draw.randrange(1, longest))] for _ in range(number)]


@torch.no_grad()
def assert_as_eager(engine: CapturedSearches, networks, sources, chosen, device: torch.device = CPU) -> list[int]:
    """The engine's translations are those of the eager search, passes and scores too; their lengths."""
    actual = translated(engine, sources, chosen, scored=True, networks=networks)
    expected = searched({role: model.cpu() for role, model in networks.items()}, pad(sources, eos=True), chosen)
    for model in networks.values():
        model.to(device)
    assert (actual.tokens, actual.steps) == (expected.tokens, expected.steps)
    assert actual.scores == pytest.approx(expected.scores, abs=1e-9)
    return list(map(len, actual.tokens))


@pytest.fixture
def good_drafts(monkeypatch):
    """Drafts that are the outputs of greedy search with words left out and others put in."""

    def drafts(search, sources, _translate):
        draw = random.Random(len(sources))
        outputs = greedy(search.model, pad(sources, eos=True).to(search.model.output_bias.device)).tokens

        def changed(words):
            return [draw.randrange(3, 11) if draw.random() < 0.1 else word for word in words if draw.random() > 0.05]

        return [[changed(words) for _ in range(search.settings.drafts)] for words in outputs]

    monkeypatch.setattr(DraftSearch, "drafts", drafts)


@pytest.mark.parametrize(
    ("norm", "fields"),
    [
        ("pre", {}),
        ("post", {}),
        ("pre", {"block": 3}),
        ("post", {"block": 40}),
        ("pre", {"drafts": 3}),
        ("post", {"tolerance": 2.0, "top": 3}),
        ("pre", {"max_length_ratio": 0.01}),
    ],
    ids=str,
)
def test_outputs_are_those_of_the_eager_search(norm, fields, good_drafts):
    """Of batches of several sizes, whose sentences end in different passes; also beyond the first cache."""
    chosen, sources = settings(**fields), sentences()
    networks = {MODEL: verifier(norm=norm), DRAFTER: nat(13, 12)}
    engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
    lengths = set()
    for size in (12, 1, 5):
        for first in range(0, len(sources), size):
            lengths.update(assert_as_eager(engine, networks, sources[first : first + size], chosen))
    assert "max_length_ratio" in fields or (len(lengths) > 3 and max(lengths) > captured_steps.CACHE)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drafts_of_any_family_are_checked_in_captured_passes(drafter):
    """Those of LSTMs, which no graph has, are made eagerly."""
    with pretended():
        device = torch.device("cuda")
        networks = {MODEL: verifier().cuda(), DRAFTER: DRAFTERS[drafter]().cuda()}
        engine = CapturedSearches({"transformer": networks[MODEL]}, device)
        several = 1 if drafter == "latents" else 3
        for sources, drafts in (
            (sentences(3, longest=9), 1),
            (sentences(1, seed=2), 1),
            (sentences(2, seed=3), several),
        ):
            assert_as_eager(engine, networks, sources, settings(drafts=drafts), device)


@pytest.mark.parametrize("drafts", [1, 3])
def test_drafts_of_a_beam_with_a_language_model_are_checked_in_captured_passes(drafts):
    networks = {MODEL: verifier(), DRAFTER: DRAFTERS["ctc"](), LM: ngram(11)}
    engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
    chosen = settings(drafts=drafts, language_model="lm", lm_weight=2.0, tolerance=1e6, top=11)
    assert_as_eager(engine, networks, sentences(6), chosen)
    without = searched(networks, pad(sentences(6), eos=True), settings(drafts=drafts, tolerance=1e6, top=11))
    assert translated(engine, sentences(6), chosen, networks=networks).tokens != without.tokens


@pytest.mark.parametrize("block", [2, 7, 20])
def test_the_cpu_waits_once_a_pass(block):
    """And once for the drafts; a graph reads the source, one makes the drafts, and each pass is one."""
    with pretended():
        networks = {MODEL: verifier(end=-1000.0).cuda(), DRAFTER: nat(13, 12).cuda()}
        engine, chosen = CapturedSearches({"transformer": networks[MODEL]}, torch.device("cuda")), settings(block=block)
        for source in ([5], [5, 7, 9, 4], [8] * 6):
            translated(engine, [source], chosen, networks=networks)
            with counted() as counts:
                (passes,) = translated(engine, [source], chosen, networks=networks).steps
            assert counts["synchronisations"] == passes + 1
            assert counts["graph launches"] == passes + 2


@pytest.mark.parametrize(
    ("fields", "number"),
    [({}, 130), ({"drafts": 5}, 26), ({"drafts": 5, "block": 32}, 8), ({"block": 100, "drafts": 7}, 3)],
    ids=str,
)
def test_words_of_a_large_batch_are_not_all_computed_together(fields, number, monkeypatch):
    """Logits are those of 512 words of blocks at most, or of one sentence, whose blocks are padded."""
    judge, most_words = DraftSearch.judge, []

    def judged(self, logits, checked, limit):
        most_words.append(logits[..., 0].numel())
        return judge(self, logits, checked, limit)

    monkeypatch.setattr(DraftSearch, "judge", judged)
    networks, chosen = {MODEL: verifier(), DRAFTER: nat(13, 12)}, settings(**fields)
    engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
    assert number * chosen.block * chosen.drafts > 2 * 512
    assert len(assert_as_eager(engine, networks, sentences(number, longest=6), chosen)) == number
    assert max(most_words) <= max(512, (chosen.block + 31) * chosen.drafts)


def test_passes_have_few_widths_whatever_the_block(good_drafts, monkeypatch):
    """Each width is a capture, which takes as long as many translations."""
    judge, widths = DraftSearch.judge, set()

    def judged(self, logits, checked, limit):
        widths.add(checked.size(1))
        return judge(self, logits, checked, limit)

    monkeypatch.setattr(DraftSearch, "judge", judged)
    networks = {MODEL: verifier(), DRAFTER: nat(13, 12)}
    engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
    for source in sentences(20, longest=26):
        translated(engine, [source], settings(block=100), networks=networks)
    assert max(widths) > 32 and len(widths) <= 6


def test_an_output_may_be_empty_or_as_long_as_there_are_positions():
    for end, ratio, expected in ((1000.0, 2.0, [0, 0]), (-1000.0, 50.0, [20, 20])):
        networks = {MODEL: verifier(end=end, max_positions=21), DRAFTER: nat(13, 12)}
        engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
        chosen = settings(max_length_ratio=ratio)
        assert assert_as_eager(engine, networks, [[5] * 19, [6, 7]], chosen) == expected


def test_each_drafter_makes_its_own_drafts():
    """Also where an engine has captured another one's with the same settings."""
    first, second = ({MODEL: verifier(), DRAFTER: nat(13, 12, seed=seed)} for seed in (0, 7))
    second[MODEL] = first[MODEL]
    engine, sources = CapturedSearches({"transformer": first[MODEL]}, CPU), sentences(6)
    for networks in (first, second, first):
        assert_as_eager(engine, networks, sources, settings())
    passes = [translated(engine, sources, settings(), networks=networks).steps for networks in (first, second)]
    assert passes[0] != passes[1]


def test_a_drafter_with_fewer_positions_leaves_long_sentences_without_a_draft():
    networks = {MODEL: verifier(), DRAFTER: nat(13, 12, max_positions=9)}
    engine = CapturedSearches({"transformer": networks[MODEL]}, CPU)
    sources = sentences(6)
    assert min(map(len, sources)) < 8 < max(map(len, sources))
    assert_as_eager(engine, networks, sources, settings())
    # Exactly as long as the drafter's positions, the end symbol counted: it has a draft.
    assert_as_eager(engine, networks, [[5] * 8, [4] * 3], settings())


@torch.no_grad()
def test_passes_read_no_values():
    """Of tensors without values, as in a capture: reading one is an error."""
    chosen = settings(drafts=2, tolerance=1.0)
    networks = {MODEL: verifier().to("meta"), DRAFTER: nat(13, 12)}
    search = open_search(networks, chosen)
    memory = search.model.encode(torch.full((4, 16), 5, device="meta"))
    decoder = search.model.start_fixed(memory, 2, captured_steps.CACHE)
    numbers = torch.zeros(8, dtype=torch.int64, device="meta")
    for width in WIDTHS:
        decoder.reorder(numbers)
        decoder.rewind(numbers)
        block = torch.zeros(8, width, dtype=torch.int64, device="meta")
        assert all(column.is_meta for column in search.judge(decoder.steps(block), block, numbers))
