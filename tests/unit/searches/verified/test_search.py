"""Drafts that an autoregressive model checks, against its own greedy search."""

from __future__ import annotations

import copy
import dataclasses
import random
import types

import pytest
import torch
import torch.nn.functional as F
from miniatures import (
    AUTOREGRESSIVE,
    cmlm,
    dat,
    greedy,
    inat,
    lanmt,
    lvm,
    nat,
    ngram,
    one,
    padded,
    pairs,
    peaked,
    searched,
    tagger,
)

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.search import open_search
from workflow_src.decoding.settings import DRAFTER, LM
from workflow_src.families.build import build
from workflow_src.nn.layers import Memory
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.searches.verified import VerifiedSettings, draft_settings
from workflow_src.searches.verified import search as verified_search
from workflow_src.spec import MODEL
from workflow_src.types import BOS, EOS, PAD, Hypotheses

V = 11
LENGTHS = [4, 1, 6, 2, 5]
DRAFTERS = {
    "ctc": lambda: nat(13, V + 1),
    "argmax": lambda: nat(13, V + 1, loss="axe", max_length_difference=4),
    "latents": lambda: lvm(13, V),
    "source latents": lambda: lanmt(13, V),
    "masked": lambda: cmlm(13, V + 1),
    "iterative": lambda: inat(13, V),
    "tagger": lambda: tagger(13, V),
    "graph": lambda: dat(13, V),
}


@pytest.fixture(params=[*AUTOREGRESSIVE, "without states"])
def model(request, monkeypatch):
    """A model whose outputs have many lengths; also one that has no decoder of its own."""
    name = request.param if request.param in AUTOREGRESSIVE else "transformer"
    model = peaked(AUTOREGRESSIVE[name](13, V, seed=5))
    if name != request.param:
        monkeypatch.setattr(type(model), "start", AutoregressiveModel.start)
    return model


def settings(**fields) -> VerifiedSettings:
    return VerifiedSettings(drafter="drafter", **fields)


def verify(model, source, drafts, chosen: VerifiedSettings, scored: bool = True) -> Hypotheses:
    """Translations of source (B, S) from drafts of each sentence."""
    return open_search({MODEL: model, DRAFTER: nat(13, V + 1)}, chosen, scored).verify(source, drafts)


def assert_same(actual: Hypotheses, expected: Hypotheses) -> None:
    assert actual.tokens == expected.tokens
    assert actual.scores == pytest.approx(expected.scores, abs=1e-9)


def steps_of(outputs: list[list[int]]) -> list[int]:
    """Steps of greedy search, the end counted."""
    return [len(words) + 1 for words in outputs]


def drafts_of(outputs: list[list[int]], drafts: int, seed: int) -> list[list[list[int]]]:
    """Random ones: nothing, outputs with words changed, left out and added, all kinds of symbols, and far too long."""
    draw = random.Random(seed)

    def changed(words: list[int]) -> list[int]:
        kept = [draw.randrange(3, V) if draw.random() < 0.2 else word for word in words if draw.random() > 0.2]
        return [word for w in kept for word in ([w, draw.randrange(3, V)] if draw.random() < 0.2 else [w])]

    kinds = (
        lambda words: [],
        lambda words: words[: draw.randrange(len(words) + 1)],
        changed,
        lambda words: [draw.randrange(V) for _ in range(draw.randrange(9))],
        lambda words: words + [draw.randrange(3, V) for _ in range(90)],
        lambda words: [draw.choice(words or [3])] * 12,
    )
    return [[draw.choice(kinds)(words) for _ in range(drafts)] for words in outputs]


# All pairs of two of the three.
@pytest.mark.parametrize(
    ("drafts", "block", "ratio"),
    [
        *((1, 1, 2.0), (1, 3, 0.01), (1, 8, 2.0), (1, 40, 0.01)),
        *((3, 1, 0.01), (3, 3, 2.0), (3, 8, 0.01), (3, 40, 2.0)),
        (1, 3, 1e19),
    ],
)
def test_whatever_the_drafts_the_output_is_that_of_greedy_search_in_no_more_passes(model, drafts, block, ratio):
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    expected = greedy(model, source, ratio)
    assert len(set(map(len, expected.tokens))) > (ratio == 2.0)
    for seed in range(12):
        actual = verify(
            model,
            source,
            drafts_of(expected.tokens, drafts, seed),
            settings(drafts=drafts, block=block, max_length_ratio=ratio),
        )
        assert_same(actual, expected)
        pairs_of_steps = zip(actual.steps, steps_of(expected.tokens), strict=True)
        assert all(1 <= passes <= steps for passes, steps in pairs_of_steps)


def test_a_right_draft_is_accepted_block_by_block(model):
    """Also with its end symbol, and where nothing follows; the end is checked with the words."""
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    outputs = greedy(model, source).tokens
    for ends in ([], [EOS], [EOS, 5, 6]):
        for block in (1, 4, 50):
            drafts = [[words + ends] for words in outputs]
            passes = verify(model, source, drafts, settings(block=block)).steps
            assert passes == [-(-steps // block) for steps in steps_of(outputs)]


def drafted(words: list[int], place: int, other: int) -> dict[str, tuple[list[int], int]]:
    """Drafts that are wrong at one place, and the passes that a right output then takes."""
    before, behind = words[:place], words[place:]
    return {
        # The refused word is expected behind the decoder's own, and refused once more.
        "another word": ([*before, other, *behind[1:]], 3),
        "a word more": ([*before, other, *behind], 2),
        "three words more": ([*before, other, other, other, *behind], 2),
        # The words that are left out are the decoder's own.
        "a word less": (before + behind[1:], 2),
        "two words less": (before + behind[2:], 3),
    }


class Saying(AutoregressiveModel):
    """A model that says some words below 31 and ends, whatever its source and its words before are."""

    def __init__(self, words: list[int]):
        super().__init__()
        self.config, self.words = types.SimpleNamespace(max_positions=64), words

    def encode(self, source):
        return Memory(source[..., None].double(), source != PAD, None, source, source[..., None].double())

    def hidden(self, memory, target):
        places = torch.arange(target.size(1) + 1, dtype=torch.float64)
        return places[:, None].expand(target.size(0), -1, 1)

    def logits(self, hidden):
        said = torch.tensor([*self.words, *[EOS] * 64])
        return 5 * F.one_hot(said[hidden[..., 0].long()], 31).double()


@pytest.mark.parametrize(
    "words, draft, passes",
    [
        # 10 stands two places before the refused word, too.
        ([10, 11, 10, 13, 14, 15], [10, 11, 9, 10, 13, 14, 15], 2),
        # 20 stands next to the refused word, but behind another word than in the output.
        ([10, 11, 20, 13, 14, 15], [10, 11, 9, 20, 8, 11, 20, 13, 14, 15], 2),
        # Nine places on is too far: the draft is of no use until its end.
        ([10, 11, 20, 13], [10, 11, *[9] * 8, 20, 13], 2),
        ([10, 11, 20, 13], [10, 11, *[9] * 9, 20, 13], 3),
    ],
)
def test_a_draft_goes_on_at_the_nearest_place_with_the_last_words(words, draft, passes):
    actual = verify(Saying(words), pairs([12], [1]).source, [[draft]], settings(block=90))
    assert (actual.tokens, actual.steps) == ([words], [passes])


@pytest.mark.parametrize("place", [1, 2, 7, 19])
@pytest.mark.parametrize("kind", drafted([*range(3, 30)], 1, 30))
def test_a_draft_is_lined_up_behind_a_wrong_place(kind, place):
    words = [*range(3, 30)]
    draft, passes = drafted(words, place, 30)[kind]
    actual = verify(Saying(words), pairs([12], [1]).source, [[draft]], settings(block=90))
    assert (actual.tokens, actual.steps) == ([words], [passes])


def test_a_word_that_is_refused_three_times_is_passed_over():
    """The output has three further words there, and later one in the place of the draft's word."""
    words = [10, 20, 21, 22, *range(3, 9)]
    actual = verify(Saying(words), pairs([12], [1]).source, [[[10, 9, *range(3, 9)]]], settings(block=90))
    # Of 20, 21 and 22, each takes a pass; then the rest is accepted.
    assert (actual.tokens, actual.steps) == ([words], [4])


def test_the_longest_accepted_of_several_drafts_wins(model):
    """A sentence takes as many passes as with its best draft, or fewer where drafts complete each other."""
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    outputs = greedy(model, source).tokens
    wrong = [[V - 1 - words[0] % 2] * 3 if words else [3, 3] for words in outputs]
    for order in (0, 1, 2):
        drafts = [[bad, bad, []] for bad in wrong]
        for row, words in enumerate(outputs):
            drafts[row][order] = words
        actual = verify(model, source, drafts, settings(drafts=3, block=50))
        assert actual.tokens == outputs and actual.steps == [1] * len(outputs)
    halves = [[words[: len(words) // 2], [3] * (len(words) // 2) + words[len(words) // 2 :]] for words in outputs]
    single = verify(model, source, [[first] for first, _ in halves], settings(block=50)).steps
    both = verify(model, source, halves, settings(drafts=2, block=50)).steps
    assert all(passes <= 2 or passes < alone for passes, alone in zip(both, single, strict=True))


def near_best(model, source) -> list[int]:
    """A draft of six words, each the best, the second or the third behind those before it."""
    states, words = model.scoring_states(source), []
    for rank in (1, 0, 2, 1, 0, 1):
        scores = model.logits(model.hidden(states, torch.tensor([words], dtype=torch.int64)))[0, -1]
        words.append(EOS + 1 + int(scores[EOS + 1 :].argsort(descending=True)[rank]))
    return words


@pytest.mark.parametrize("tolerance, top", [(1.0, 5), (3.0, 2), (3.0, 5), (50.0, 1), (50.0, V)])
def test_near_best_words_of_a_draft_are_accepted(model, tolerance, top):
    """Against a rule of its own for every word of the output, read off whole passes."""
    batch, kept = pairs(LENGTHS, [1] * len(LENGTHS)), 0
    # Words are near each other where embeddings are small.
    model.target_embedding.weight.data.div_(6)
    drafts = [[near_best(model, one(batch, row).source)] for row in range(len(LENGTHS))]
    actual = verify(model, batch.source, drafts, settings(tolerance=tolerance, top=top, block=4))
    for row, words in enumerate(actual.tokens):
        states = model.scoring_states(one(batch, row).source)
        scores = (
            model.logits(model.hidden(states, torch.tensor([words], dtype=torch.int64)))[0].log_softmax(-1).detach()
        )
        ranks = scores[:, EOS:].argsort(-1, descending=True).argsort(-1)
        total, longest = 0.0, 2 * LENGTHS[row] + 10
        for place, word in enumerate([*words, EOS]):
            total += float(scores[place, word])
            # At the longest length only an end may come.
            if place < longest:
                assert ranks[place, word - EOS] < top
                assert scores[place, word] >= scores[place, EOS:].max() - tolerance
                kept += int(ranks[place, word - EOS]) > 0
        assert actual.scores[row] == pytest.approx(total / (len(words) + 1), abs=1e-9)
    assert (kept > 0) == (top > 1)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_word_is_accepted_up_to_its_distance_from_the_best_and_its_rank(model, rank):
    batch = pairs(LENGTHS, [1] * len(LENGTHS))
    states = model.scoring_states(batch.source)
    with torch.no_grad():
        first = model.logits(model.hidden(states, torch.zeros(len(LENGTHS), 0, dtype=torch.int64)))[:, 0]
    values, order = first[:, EOS + 1 :].sort(-1, descending=True)
    for row in range(len(LENGTHS)):
        word, distance = int(order[row, rank]) + EOS + 1, float(first[row, EOS:].max() - values[row, rank])
        # The end symbol may be better than the word, too.
        place = rank + int(first[row, EOS] > values[row, rank])
        best = [] if first[row].argmax() == EOS else [int(order[row, 0]) + EOS + 1]
        for nearer, top, accepted in ((1e-9, place + 1, True), (-1e-9, place + 1, False), (1e-9, place, False)):
            chosen = settings(tolerance=distance + nearer, top=top, max_length_ratio=1e-9)
            words = verify(model, one(batch, row).source, [[[word]]], chosen).tokens[0]
            assert words[:1] == ([word] if accepted else best)


@pytest.mark.parametrize("tolerance", [1e6, 1e308])
def test_a_whole_draft_is_accepted_with_a_large_tolerance(model, tolerance):
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    drafts = [[[3 + (row + place) % 7 for place in range(6)]] for row in range(len(LENGTHS))]
    actual = verify(model, source, drafts, settings(tolerance=tolerance, top=V, block=7))
    assert actual.tokens == [words for (words,) in drafts] and actual.steps == [1] * len(LENGTHS)


def test_symbols_that_are_no_words_are_never_accepted(model):
    source = pairs([4], [1]).source
    drafts = [[[5, BOS, 6, PAD, 7]]]
    # Beyond the range of float32.
    actual = verify(copy.deepcopy(model).float(), source, drafts, settings(tolerance=1e39, top=V, block=7))
    assert not {BOS, PAD} & set(actual.tokens[0])


@pytest.mark.parametrize("fields", [{}, {"tolerance": 2.0, "top": 3}, {"drafts": 2, "tolerance": 1.0}])
def test_neither_padding_nor_company_changes_a_sentence(model, fields):
    batch = pairs(LENGTHS, [1] * len(LENGTHS))
    chosen = settings(block=3, **fields)
    drafts = drafts_of(greedy(model, batch.source).tokens, chosen.drafts, seed=1)
    together = verify(model, batch.source, drafts, chosen)
    assert_same(verify(model, padded(batch).source, drafts, chosen), together)
    for row in range(len(LENGTHS)):
        alone = verify(model, one(batch, row).source, drafts[row : row + 1], chosen)
        assert alone.tokens == together.tokens[row : row + 1] and alone.steps == together.steps[row : row + 1]
        assert alone.scores == pytest.approx(together.scores[row : row + 1], abs=1e-9)


def test_scores_that_nobody_asks_for_are_zero(model):
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    drafts = [[[]] for _ in LENGTHS]
    unscored = verify(model, source, drafts, settings(), scored=False)
    assert unscored.tokens == greedy(model, source).tokens and unscored.scores == [0.0] * len(LENGTHS)


def test_no_output_has_a_special_symbol(model):
    with torch.no_grad():
        model.output_bias[:EOS] += 3
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    drafts = [[[0, 1, 0, 5, 1]] for _ in LENGTHS]
    actual = verify(model, source, drafts, settings(tolerance=30.0, top=V))
    assert all(word > EOS for words in actual.tokens for word in words)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_family_of_one_pass_drafts(model, drafter):
    source, drafting = pairs(LENGTHS, [1] * len(LENGTHS)).source, DRAFTERS[drafter]()
    networks = {MODEL: model, DRAFTER: drafting}
    expected = greedy(model, source)
    assert_same(searched(networks, source, settings()), expected)
    if drafter != "latents":
        assert_same(searched(networks, source, settings(drafts=3)), expected)


def drafts_of_search(drafter, source, chosen: VerifiedSettings, language_model=None) -> list[list[list[int]]]:
    """Drafts of each sentence of source (B, S)."""
    networks = {MODEL: AUTOREGRESSIVE["transformer"](13, V), DRAFTER: drafter}
    if language_model is not None:
        networks[LM] = language_model
    search = open_search(networks, chosen)
    sources = [row[row > EOS].tolist() for row in source]
    return search.drafts(sources, lambda rows: search.drafting.translate(pad(rows, eos=True)))


def test_several_drafts_are_the_best_outputs_of_the_drafter():
    source, drafter = pairs(LENGTHS, [1] * len(LENGTHS)).source, nat(13, V + 1)
    ranked = searched({MODEL: drafter}, source, registry.searches()["ctc-beam"].settings(beam=3)).ranked()
    drafts = drafts_of_search(drafter, source, settings(drafts=3))
    assert drafts == [[words for _, words in hypotheses] for hypotheses in ranked]
    assert all(len(set(map(tuple, own))) == 3 for own in drafts)


WITH_LM = {"language_model": "lm", "lm_weight": 2.0, "word_bonus": 1.0}


@pytest.fixture(scope="module")
def language_model():
    return ngram(V)


@pytest.mark.parametrize(("drafter", "beam"), [("ctc", "ctc-beam"), ("graph", "graph-beam")])
@pytest.mark.parametrize("drafts", [1, 3])
def test_drafts_with_a_language_model_are_the_best_outputs_of_the_drafters_beam(drafter, beam, drafts, language_model):
    source, network = pairs(LENGTHS, [1] * len(LENGTHS)).source, DRAFTERS[drafter]()
    networks = {MODEL: network, LM: language_model}
    alone = registry.searches()[beam].settings(beam=5, **WITH_LM)
    expected = [[words for _, words in ranked[:drafts]] for ranked in searched(networks, source, alone).ranked()]
    chosen = settings(drafts=drafts, draft_beam=5, **WITH_LM)
    assert drafts_of_search(network, source, chosen, language_model) == expected
    assert drafts_of_search(network, source, settings(drafts=drafts)) != expected


@pytest.mark.parametrize("drafter", ["ctc", "graph"])
def test_drafts_with_a_language_model_leave_the_output_that_of_greedy_search(model, drafter, language_model):
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    networks = {MODEL: model, DRAFTER: DRAFTERS[drafter](), LM: language_model}
    assert_same(searched(networks, source, settings(**WITH_LM)), greedy(model, source))


@pytest.mark.parametrize(("name", "fields"), [("argmax", {}), ("mask-predict", {"length_beam": 1})])
def test_the_named_search_makes_the_drafts(name, fields):
    source, drafter = pairs(LENGTHS, [1] * len(LENGTHS)).source, cmlm(13, V + 1)
    outputs = searched({MODEL: drafter}, source, registry.searches()[name].settings(**fields)).tokens
    assert drafts_of_search(drafter, source, settings(draft_search=name)) == [[words] for words in outputs]


def test_the_search_of_the_drafter_is_that_of_its_family(monkeypatch):
    """As the plan chooses it, also where several families have the same model settings."""
    drafter, declared = nat(13, V + 1), registry.families()
    other = dataclasses.replace(declared["nat"], name="other", searches=("ctc-beam",))
    monkeypatch.setattr(verified_search, "families", lambda: {**declared, "other": other})
    for name in ("nat", "other"):
        drafter.family = name
        planned = draft_settings(settings(), verified_search.families()[name], drafter.config)
        search = open_search({MODEL: AUTOREGRESSIVE["transformer"](13, V), DRAFTER: drafter}, settings())
        assert search.drafting.settings == planned
        assert search.drafting.declared.name == {"nat": "ctc-greedy", "other": "ctc-beam"}[name]


@pytest.mark.parametrize("family", ["cmlm", "inference-network", "tagger", "inference-tagger"])
def test_a_built_network_says_its_family(family):
    config = cmlm().config if family in ("cmlm", "inference-network") else tagger().config
    assert build(family, config, {"source": 13, "target": V, "joint": False}).family == family


def test_a_sentence_that_is_too_long_for_the_drafter_is_translated_without_a_draft(model):
    source = pairs(LENGTHS, [1] * len(LENGTHS)).source
    networks = {MODEL: model, DRAFTER: nat(13, V + 1, max_positions=4)}
    assert_same(searched(networks, source, settings()), greedy(model, source))
