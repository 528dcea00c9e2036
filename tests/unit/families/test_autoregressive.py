"""Autoregressive models: steps with a cache, parts of a loss, and relaxed outputs, distributions in place of words."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from miniatures import AUTOREGRESSIVE as MODELS
from miniatures import context, one, pairs, walk
from refusals import fields_of
from torch import nn

from workflow_src.errors import ConfigError
from workflow_src.losses.cross_entropy import cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.types import BOS, EOS, PAD

V = 11
SHAPES = [
    ("transformer", {"norm": "pre"}),
    ("transformer", {"norm": "post"}),
    ("seq2seq", {}),
    ("seq2seq", {"encoder_layers": 1, "decoder_layers": 3}),
]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("kind, shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@torch.no_grad()
def test_cached_steps_give_the_log_probabilities_of_a_whole_pass(kind, shape, joint, dtype):
    sizes = (V, V) if joint else (13, V)
    model = MODELS[kind](*sizes, joint, **shape).to(dtype)
    tolerance = 1e-12 if dtype == torch.float64 else {"transformer": 1e-5, "seq2seq": 1e-4}[kind]
    batch = pairs([4, 1, 6], [40, 35, 38], sizes)
    whole_pass = model.log_probabilities(batch.source, batch.target)
    decoder = model.start(model.encode(batch.source))
    tokens = torch.full((3,), BOS)
    labels = F.pad(batch.target, (0, 1), value=PAD)
    for position in range(41):
        expected = labels[:, position].clone()
        expected[position == batch.target_lengths] = EOS
        log_probabilities = decoder.step(tokens).log_softmax(-1).gather(1, expected[:, None])[:, 0]
        real = position <= batch.target_lengths
        assert torch.allclose(log_probabilities[real], whole_pass[real, position], rtol=0, atol=tolerance)
        assert (whole_pass[~real, position] == 0).all()
        tokens = labels[:, position]


@pytest.mark.parametrize("kind, shape", SHAPES)
@torch.no_grad()
def test_kept_and_reordered_rows_continue_their_own_prefixes(kind, shape):
    """A cache grows past 32 positions."""
    model = MODELS[kind](13, V, **shape)
    source = pairs([4, 1, 6, 2], [1] * 4).source
    decoder = model.start(model.encode(source))
    for log_probabilities, rows in walk(decoder, 4, 40, {0, 2, 5, 8, 30, 32}, {1: [0, 2, 3], 5: [2, 0], 31: [1]}):
        for row, (sentence, prefix) in enumerate(rows):
            if len(prefix) < 12 or len(prefix) in (20, 31, 32, 33, 39):
                alone = source[sentence][source[sentence] != PAD][None]
                states = model.hidden(model.encode(alone), torch.tensor([prefix], dtype=torch.int64))
                expected = model.logits(states)[0, -1].log_softmax(-1)
                assert torch.allclose(log_probabilities[row], expected, rtol=0, atol=1e-12), (len(prefix), row)


@pytest.mark.parametrize("kind", MODELS)
def test_parts_of_a_loss_join_by_their_counts(kind):
    model, batch = MODELS[kind](), pairs([4, 1, 6], [3, 5, 1])
    objective = functools.partial(cross_entropy, config=CrossEntropyConfig())
    terms = objective(model, batch, context())
    assert terms.count == 12
    by_sentence = [objective(model, one(batch, row), context()) for row in range(3)]
    joined = sum(x.loss * x.count for x in by_sentence) / sum(x.count for x in by_sentence)
    assert joined.item() == pytest.approx(terms.loss.item(), rel=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_joint_vocabulary_is_one_matrix(kind):
    model = MODELS[kind](V, V, joint=True)
    assert model.source_embedding is model.target_embedding
    separate = MODELS[kind]()
    assert separate.source_embedding is not separate.target_embedding


@pytest.mark.parametrize("kind", MODELS)
def test_too_many_positions_are_refused_by_number(kind):
    model = MODELS[kind](max_positions=8)
    fits = pairs([7], [7])
    assert model.log_probabilities(fits.source, fits.target).shape == (1, 8)
    fields = {"setting": "model.max_positions", "value": 8, "mentions": ("9",)}
    for long in (pairs([8], [1]), pairs([1], [8])):
        with pytest.raises(ConfigError) as refused:
            model.log_probabilities(long.source, long.target)
        assert fields_of(refused.value, fields) == fields
    decoder = model.start(model.encode(fits.source))
    with torch.no_grad():
        for _ in range(8):
            decoder.step(torch.tensor([BOS]))
        with pytest.raises(ConfigError) as refused:
            decoder.step(torch.tensor([BOS]))
    assert fields_of(refused.value, fields) == fields


def distributions(target, size: int = V, seed: int = 0):
    """Random ones (B, T, V), far from even."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(*target.shape, size, generator=generator, dtype=torch.float64)).softmax(-1)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_one_hot_distributions_give_the_logits_of_their_words(kind, joint):
    sizes = (V, V) if joint else (13, V)
    model, batch = MODELS[kind](*sizes, joint), pairs([4, 1, 6], [3, 5, 1], sizes)
    states = model.scoring_states(batch.source)
    logits = model.relaxed_logits(states, F.one_hot(batch.target, V).double())
    assert logits.shape == (3, 6, V)
    assert torch.allclose(logits, model.logits(model.hidden(states, batch.target)), atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_a_distribution_is_read_as_a_word_whose_embedding_is_the_mean(kind):
    """The model with one more row for each relaxed position, which is their mean, reads these rows as words."""
    model, batch = MODELS[kind](13, V), pairs([4, 1, 6], [3, 5, 1])
    soft = distributions(batch.target)
    logits = model.relaxed_logits(model.scoring_states(batch.source), soft)
    rows = soft.flatten(0, 1)
    with torch.no_grad():
        weight = model.target_embedding.weight
        model.target_embedding.weight = nn.Parameter(torch.cat([weight, rows @ weight]))
        model.output_bias = nn.Parameter(F.pad(model.output_bias, (0, len(rows))))
    words = V + torch.arange(len(rows)).view(batch.target.shape)
    expected = model.logits(model.hidden(model.encode(batch.source), words))[..., :V]
    assert torch.allclose(logits, expected, atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_relaxed_outputs_do_not_know_later_positions(kind):
    model, batch = MODELS[kind](13, V), pairs([4, 1, 6], [3, 5, 1])
    soft = distributions(batch.target)
    logits = model.relaxed_logits(model.scoring_states(batch.source), soft)
    other_ending = soft.clone()
    other_ending[:, 3:] = distributions(batch.target[:, 3:], seed=1)
    changed = model.relaxed_logits(model.scoring_states(batch.source), other_ending)
    assert torch.allclose(changed[:, :4], logits[:, :4], atol=1e-12) and not torch.allclose(changed, logits)


@pytest.mark.parametrize("kind", MODELS)
def test_an_output_without_words_has_the_end_alone(kind):
    model, source = MODELS[kind](13, V), pairs([4, 2], [1, 1]).source
    states = model.scoring_states(source)
    logits = model.relaxed_logits(states, torch.zeros(2, 0, V, dtype=torch.float64))
    assert torch.allclose(logits, model.logits(model.hidden(states, torch.zeros(2, 0, dtype=torch.int64))), atol=1e-12)
