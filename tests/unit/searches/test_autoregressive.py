from __future__ import annotations

import itertools

import miniatures
import numpy as np
import pytest
import torch
from miniatures import AUTOREGRESSIVE, beam_search, greedy, one, pairs
from pretended_cuda import pretended

from workflow_src.decoding.lengths import limits
from workflow_src.decoding.ngram import estimate
from workflow_src.types import EOS, PAD

# Words of the exhaustive tests: unknown, 4 and 5.
V = 6


@pytest.fixture
def longest(monkeypatch):
    """Set the longest output of every sentence."""

    def set_longest(length: int) -> None:
        monkeypatch.setattr(
            "workflow_src.decoding.steps.limits",
            lambda source, _ratio, _positions: torch.full((source.size(0),), length, device=source.device),
        )

    return set_longest


@pytest.fixture(params=AUTOREGRESSIVE)
def family(request) -> str:
    """Every family with `encode` and `start`, which is all that searches need."""
    return request.param


def peaked(family: str, seed: int, size: int = V, **options):
    """A model whose probabilities are far from even."""
    return miniatures.peaked(AUTOREGRESSIVE[family](13, size, seed=seed, **options))


def scores(model, source, outputs: list[tuple[int, ...]]) -> torch.Tensor:
    """log p of each output with its end symbol, by a whole pass over all of them."""
    width = max(1, max(map(len, outputs)))
    target = torch.tensor([list(words) + [PAD] * (width - len(words)) for words in outputs])
    with torch.no_grad():
        return model.log_probabilities(source.expand(len(outputs), -1), target).sum(1)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wide_beam_with_a_language_model_finds_the_best_sum(longest, seed, family):
    longest(3)
    model = peaked(family, seed)
    batch = pairs([4, 1], [1, 1], seed=seed)
    drawn = np.random.default_rng(seed).integers(3, V, 30)
    language_model = estimate(drawn, np.arange(0, 31, 3), V, 2)
    outputs = [words for n in range(4) for words in itertools.product(range(3, V), repeat=n)]
    # At the longest length an output ends whatever its end costs.
    extra = torch.tensor([language_model.log_probability(words) for words in outputs])
    divisors = torch.tensor([len(words) + 1.0 for words in outputs], dtype=torch.float64)
    hypotheses = beam_search(model, batch.source, beam=V**3, language_model=language_model, lm_weight=0.8)
    for row in range(2):
        expected = (scores(model, one(batch, row).source, outputs) + 0.8 * extra) / divisors
        assert hypotheses.tokens[row] == list(outputs[int(expected.argmax())])
        assert hypotheses.scores[row] == pytest.approx(float(expected.max()), rel=1e-6)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_wide_beam_finds_what_exhaustive_search_finds(longest, penalty, seed, family):
    length = 3
    longest(length)
    model = peaked(family, seed)
    batch = pairs([4, 1], [1, 1], seed=seed)
    outputs = [words for n in range(length + 1) for words in itertools.product(range(3, V), repeat=n)]
    divisors = torch.tensor([(len(words) + 1.0) ** penalty for words in outputs], dtype=torch.float64)
    hypotheses = beam_search(model, batch.source, beam=V**length, length_penalty=penalty)
    for row in range(2):
        expected = scores(model, one(batch, row).source, outputs) / divisors
        assert hypotheses.tokens[row] == list(outputs[int(expected.argmax())])
        assert hypotheses.scores[row] == pytest.approx(expected.max().item(), abs=1e-12)
        # All others too, in order.
        order = sorted(range(len(outputs)), key=lambda place: -float(expected[place]))
        ranked = hypotheses.ranked()[row]
        assert [score for score, _ in ranked] == pytest.approx([float(expected[place]) for place in order], abs=1e-12)
        assert [tuple(words) for _, words in ranked[:9]] == [outputs[place] for place in order[:9]]


@pytest.mark.parametrize("width", range(1, 2 * V + 2))
def test_no_output_has_a_special_symbol_however_wide_the_beam(longest, width, family):
    """Also where a beam is wider than the vocabulary, and where the model prefers padding and the start symbol."""
    longest(5)
    for seed in range(4):
        model = peaked(family, seed)
        with torch.no_grad():
            model.output_bias[:EOS] += 3
        batch = pairs([4, 1, 3], [1, 1, 1], seed=seed)
        outputs = [*beam_search(model, batch.source, beam=width).tokens, *greedy(model, batch.source).tokens]
        assert all(token > EOS for words in outputs for token in words)


@pytest.mark.parametrize("beam", [1, 2, 4, 7])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_scores_are_the_models_own(beam, penalty, family):
    model = peaked(family, 3, size=11)
    batch = pairs([4, 1, 6], [1, 1, 1])
    hypotheses = beam_search(model, batch.source, beam, penalty)
    for row, (words, score) in enumerate(zip(hypotheses.tokens, hypotheses.scores, strict=True)):
        total = scores(model, one(batch, row).source, [tuple(words)]).item()
        assert score == pytest.approx(total / (len(words) + 1) ** penalty, abs=1e-12)


@pytest.mark.parametrize("ratio", [1e18, 1e19, 1e308])
def test_however_large_the_ratio_outputs_end_where_the_positions_do(ratio, family):
    model = peaked(family, 3, size=11)
    with torch.no_grad():
        model.output_bias[EOS] = -30.0
    source = pairs([4, 1, 6], [1, 1, 1]).source
    for search in (greedy, beam_search):
        hypotheses = search(model, source, max_length_ratio=ratio)
        assert [len(words) for words in hypotheses.tokens] == [model.config.max_positions - 1] * 3


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_a_beam_of_one(seed, family):
    model = peaked(family, seed, size=11)
    batch = pairs([4, 1, 6, 2, 5], [1] * 5, seed=seed)
    narrow, plain = beam_search(model, batch.source, beam=1), greedy(model, batch.source)
    assert narrow.tokens == plain.tokens
    assert narrow.scores == pytest.approx(plain.scores, abs=1e-12)


def test_greedy_takes_the_most_probable_word_every_time(family):
    model = peaked(family, 1, size=11)
    batch = pairs([4, 1, 6], [1, 1, 1])
    for row, words in enumerate(greedy(model, batch.source).tokens):
        source = one(batch, row).source
        states = model.hidden(model.encode(source), torch.tensor([words], dtype=torch.int64))
        best = model.logits(states)[0][:, EOS:].argmax(-1) + EOS
        limit = int(limits(source, 2.0, 64))
        assert best.tolist()[: len(words)] == words
        assert len(words) == limit or best[-1] == EOS


@pytest.mark.parametrize("search", [greedy, lambda m, s: beam_search(m, s, 4), lambda m, s: beam_search(m, s, 9, 0.6)])
@pytest.mark.parametrize(
    "family, seed, settings",
    [
        ("transformer", 5, {"norm": "pre"}),
        ("transformer", 5, {"norm": "post"}),
        ("seq2seq", 4, {}),
        ("seq2seq", 5, {"decoder_layers": 1, "encoder_layers": 3}),
    ],
)
def test_sentences_of_a_batch_do_not_influence_each_other(search, family, seed, settings):
    model = peaked(family, seed, size=11, **settings)
    batch = pairs([4, 1, 6, 2, 5, 5, 3, 9], [1] * 8)
    batched = search(model, batch.source)
    assert len({len(words) for words in batched.tokens}) > 2, "a test of sentences that end at different times"
    for row in range(8):
        alone = search(model, one(batch, row).source)
        assert alone.tokens[0] == batched.tokens[row]
        assert alone.scores[0] == pytest.approx(batched.scores[row], abs=1e-12)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_the_longest_length_is_respected_and_reached(search, family):
    model = AUTOREGRESSIVE[family](max_positions=20)
    with torch.no_grad():
        model.output_bias[EOS] = -1000.0
    batch = pairs([2, 1, 7], [1, 1, 1])
    for ratio, lengths in ((2.0, [14, 12, 19]), (1e-6, [10, 10, 10])):
        hypotheses = search(model, batch.source, max_length_ratio=ratio)
        assert [len(words) for words in hypotheses.tokens] == lengths
    for row, (words, score) in enumerate(zip(hypotheses.tokens, hypotheses.scores, strict=True)):
        total = scores(model, one(batch, row).source, [tuple(words)]).item()
        assert score == pytest.approx(total / (len(words) + 1), rel=1e-12), "the end that was forced is paid for"


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_an_output_may_be_empty(search, family):
    model = AUTOREGRESSIVE[family]()
    with torch.no_grad():
        model.output_bias[EOS] = 1000.0
    hypotheses = search(model, pairs([2, 3], [1, 1]).source)
    assert hypotheses.tokens == [[], []]
    assert hypotheses.scores == pytest.approx([0.0, 0.0])


def test_greedy_without_scores_gives_the_same_tokens(family):
    source = pairs([3, 6, 1], [2, 2, 2]).source
    scored, bare = (greedy(AUTOREGRESSIVE[family](), source, scored=with_scores) for with_scores in (True, False))
    assert scored.tokens == bare.tokens and bare.scores == [0.0] * 3 and all(score < 0 for score in scored.scores)


def test_batches_have_more_hypotheses_than_a_gpus_grid(longest):
    """On a GPU, 16,384 sentences with a beam of 4: 65,536 rows, one more than kernels of attention take."""
    longest(2)
    model, few = peaked("transformer", 1), torch.tensor([[4, 5, EOS], [5, EOS, PAD]])
    expected = beam_search(model, few, beam=4).tokens
    with pretended():
        assert beam_search(model.cuda(), few.repeat(8192, 1).cuda(), beam=4).tokens == expected * 8192
