"""The model with latents of the source's length against its equations, sentence by sentence."""

from __future__ import annotations

import math

import pytest
import sacrebleu
import torch
from miniatures import PairsDev, context, figure, gradients, lanmt, one, padded, pairs, refiner, transformer, translate

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.refinement import delta_step
from workflow_src.errors import ConfigError
from workflow_src.families import refiners
from workflow_src.families.lanmt.objective import elbo_loss
from workflow_src.families.lanmt.validation import validate
from workflow_src.families.lvm.model import start
from workflow_src.losses.draws import normal, sentence_keys
from workflow_src.losses.latents import evidence_lower_bound
from workflow_src.losses.score_matching import latents_and_goals, score_matching
from workflow_src.losses.settings import ElboConfig, ScoreMatchingConfig
from workflow_src.nn.length import LengthChoice
from workflow_src.nn.weights import weights_of
from workflow_src.types import EOS, PAD, Batch, with_end

# The model of the authors' released code.
RELEASED = {"length_reads": "states", "decoder_input": "scaled", "decoder_skip": True, "first_position": 0}


@pytest.fixture(scope="module", params=[{}, {"length_reads": "states"}, RELEASED], ids=["paper", "states", "released"])
def model(request):
    return lanmt(seed=3, **request.param)


@pytest.fixture(scope="module")
def batch():
    return pairs([4, 1, 6, 5], [3, 5, 1, 6])


def distributions(model, memory, target):
    prior, posterior = model.prior(memory, memory.mask), model.posterior(memory, target, memory.mask)
    return torch.distributions.Normal(*prior), torch.distributions.Normal(*posterior)


def length_scores(model, memory, z) -> torch.Tensor:
    """Logits over |y| - |x| of one sentence, by hand."""
    states = z[0]
    if model.config.length_reads == "states":
        projection = model.latents.projection
        states = memory.states[0] + states @ projection.weight.T + projection.bias
    return states.mean(0) @ model.length.linear.weight.T + model.length.linear.bias


def log_joint(model, memory, z, target) -> torch.Tensor:
    """log p(y|x,z,l) + log p(l|z) of one sentence, by hand."""
    labels, length = with_end(target), target.size(1)
    hidden, mask = model.hidden(memory, z, torch.tensor([length + 1]))
    assert mask.all() and mask.shape == labels.shape
    scores = (hidden[0] @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)
    words = sum(scores[position, label] for position, label in enumerate(labels[0].tolist()))
    classes = length_scores(model, memory, z).log_softmax(-1)
    difference = max(-4, min(4, length - (memory.mask.size(1) - 1)))
    return words + classes[difference + 4]


def words_at(model, memory, z, length: int) -> list[int]:
    """The best words of an output of one sentence, at most `length`, by hand."""
    hidden, mask = model.hidden(memory, z, torch.tensor([length + 1]))
    assert mask.all() and mask.size(1) == length + 1
    logits = hidden[0] @ model.target_embedding.weight.T + model.output_bias
    symbols = [int(row[EOS:].argmax()) + EOS for row in logits]
    return [symbol for symbol in symbols if symbol != EOS]


def posterior_mean(model, memory, words: list[int]) -> torch.Tensor:
    return model.posterior(memory, torch.tensor([words], dtype=torch.int64).view(1, -1), memory.mask)[0]


@torch.no_grad()
def naive(model, source, steps):
    """Algorithm 1 on one sentence: outputs and lengths in words after every step."""
    memory = model.encode(source)
    z, outputs, lengths = model.prior(memory, memory.mask)[0], [], []
    for _ in range(steps + 1):
        scores = length_scores(model, memory, z)
        lengths.append(max(1, int(scores.argmax()) - 4 + source.size(1) - 1))
        outputs.append(words_at(model, memory, z, lengths[-1]))
        z = posterior_mean(model, memory, outputs[-1])
    return outputs, lengths


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("first_position", [0, 1])
@pytest.mark.parametrize("decoder_input", ["sum", "scaled"])
def test_the_decoder_reads_its_formula(batch, decoder_input, first_position, skip):
    """Per position: z', projected, and its sinusoids; or both and an embedding of the length, scaled."""
    model = lanmt(seed=3, decoder_input=decoder_input, first_position=first_position, decoder_skip=skip)
    single = one(batch, 2).source
    memory = model.encode(single)
    z, sources, length = model.prior(memory, memory.mask)[0], single.size(1), 5
    variance = math.exp(2 * model.transformation.log_sigma.item())
    inputs = []
    for j in range(first_position, length + first_position):
        distances = [k + first_position - j * sources / length for k in range(sources)]
        weights = [math.exp(-(distance**2) / (2 * variance)) for distance in distances]
        latent = sum(weight * z[0, k] for k, weight in enumerate(weights)) / sum(weights)
        x = model.latents.projection.weight @ latent + model.latents.projection.bias
        place = model.target_embedding.positions[j - first_position]
        if decoder_input == "scaled":
            x = x / math.sqrt(2) + place / 2 + model.length_embedding.weight[length] / 2
        else:
            x = x + place
        inputs.append(x)
    expected = stack_input = torch.stack(inputs)[None]
    for layer in model.decoder.layers:
        expected = layer(expected, None, memory, False)
        if skip:
            expected = (stack_input + expected) / math.sqrt(2)
    hidden, mask = model.hidden(memory, z, torch.tensor([length]))
    assert mask.all() and torch.allclose(hidden, model.decoder.norm(expected), atol=1e-12)


def test_lengths_are_read_with_the_projection_of_the_decoder():
    names = [name for name, _ in lanmt(length_reads="states").named_parameters() if "projection" in name]
    assert names == ["latents.projection.weight", "latents.projection.bias"]


def test_delta_is_the_algorithm_with_a_new_length_at_every_step(batch):
    changed = 0
    for seed in (3, 4, 6, 8):
        model = lanmt(seed=seed)
        of_batch = translate(model, batch.source, "delta", 4, trace=True)
        wider = translate(model, padded(batch).source, "delta", 4)
        assert wider.tokens == of_batch.tokens and wider.scores == pytest.approx(of_batch.scores, abs=1e-12)
        for row in range(4):
            single = one(batch, row).source
            outputs, lengths = naive(model, single, 4)
            assert [step[row] for step in of_batch.traces] == outputs
            of_single = translate(model, single, "delta", 4)
            assert of_single.scores[0] == pytest.approx(of_batch.scores[row], abs=1e-12)
            changed += len(set(lengths)) > 1
    assert changed, "no sentence gets another length: nothing is tested"


def test_the_length_at_each_step_is_that_of_the_current_latents(model, batch):
    memory = model.encode(batch.source)
    z = model.prior(memory, memory.mask)[0]
    for shift in (-3.0, 0.0, 3.0):
        outputs, _ = model.read(memory, z + shift, memory.mask)
        probabilities = model.length(memory, z + shift).softmax(-1)
        lengths = (probabilities.argmax(-1) - 4 + memory.mask.sum(1) - 1).clamp(min=1)
        assert outputs.size(1) == int(lengths.max()) + 1
        for row, length in enumerate(lengths.tolist()):
            memory_of_row = model.encode(one(batch, row).source)
            latents = z[row : row + 1, : memory_of_row.mask.size(1)] + shift
            assert unpadded(outputs)[row] == words_at(model, memory_of_row, latents, length)


def test_a_chosen_quantile_is_the_length_of_every_step(model, batch):
    choice = LengthChoice(0.9, 0.5)
    memory = model.encode(batch.source)
    z = model.prior(memory, memory.mask)[0]
    with torch.no_grad():
        actual = delta_step(model, memory, z, memory.mask, choice)
        for row in range(4):
            single = one(batch, row).source
            memory_of_row = model.encode(single)
            start = model.prior(memory_of_row, memory_of_row.mask)[0]
            below = model.length(memory_of_row, start)[0].softmax(-1).cumsum(-1) < 0.9
            words = single.size(1) - 1
            length = max(1, int(below.sum()) - 4 + words + (words + 2) // 2)
            expected = posterior_mean(model, memory_of_row, words_at(model, memory_of_row, start, length))
            assert torch.allclose(actual[row, : words + 1], expected[0], atol=1e-12)
    longer = translate(model, batch.source, "delta", 2, length_quantile=0.9, lengthening=0.5)
    assert longer.tokens != translate(model, batch.source, "delta", 2).tokens


def test_the_loss_is_that_of_sentences_one_by_one(model, batch):
    by_position = torch.cat([divergences(model, one(batch, row)) for row in range(4)]).sort().values
    # Below some positions and above others: the budget is one for each position.
    free = by_position[len(by_position) // 2].item() + 1e-3
    assert by_position[0] < free < by_position[-1]
    config = ElboConfig(label_smoothing=0.0, kl_budget=free, budget_hold=1.0, budget_until=1.0, length_weight=0.7)
    terms = elbo_loss(model, batch, context(seed=2), config)
    keys = sentence_keys(batch, 2)
    total = tokens = kl_sum = positions = 0.0
    for row in range(4):
        pair = one(batch, row)
        memory = model.encode(pair.source)
        prior, posterior = distributions(model, memory, pair.target)
        noise = normal(keys[row : row + 1], (pair.source.size(1), 3))
        z = posterior.mean + posterior.stddev * noise
        kl = torch.distributions.kl_divergence(posterior, prior).sum(-1)[0]
        joint = log_joint(model, memory, z, pair.target)
        classes = model.length(memory, z)[0].log_softmax(-1)
        class_loss = classes[max(-4, min(4, pair.target.size(1) - pair.source.size(1) + 1)) + 4]
        total += -(joint - class_loss) - 0.7 * class_loss + kl.clamp(min=free).sum()
        tokens, kl_sum, positions = tokens + pair.target.size(1) + 1, kl_sum + kl.sum(), positions + len(kl)
    assert terms.count == tokens
    assert terms.loss.item() == pytest.approx((total / tokens).item(), rel=1e-9)
    assert figure(terms, "kl") == pytest.approx((kl_sum / positions).item(), rel=1e-9)


def divergences(model, pair: Batch) -> torch.Tensor:
    """KL of every source position of one sentence."""
    prior, posterior = distributions(model, model.encode(pair.source), pair.target)
    return torch.distributions.kl_divergence(posterior, prior).sum(-1)[0]


def test_the_budget_falls_as_training_goes_on(model, batch):
    schedule = ElboConfig(kl_budget=4.0, budget_hold=0.2, budget_until=0.6, budget_end=0.5)
    for step, free in ((0, 4.0), (19, 4.0), (40, 2.25), (60, 0.5), (99, 0.5)):
        constant_budget = ElboConfig(kl_budget=free, budget_hold=1.0, budget_until=1.0)
        terms = elbo_loss(model, batch, context(step=step, total=100, seed=2), schedule)
        expected = elbo_loss(model, batch, context(seed=2), constant_budget)
        assert terms.loss.item() == pytest.approx(expected.loss.item(), rel=1e-12)
        assert terms.figures["kl_budget"] == pytest.approx(free)


def test_the_reconstruction_reaches_the_posterior_through_the_sample(model, batch):
    """Without a KL there still is a gradient: that of the sampled latents."""
    terms = elbo_loss(model, batch, context(seed=2), ElboConfig(kl_budget=1e6, budget_hold=1.0, budget_until=1.0))
    grads = gradients(model, terms.loss)
    assert grads["latents.posterior_head.linear.weight"].abs().max() > 1e-6
    # The KL is below its budget, and nothing else reads the prior.
    assert not grads["latents.prior_head.linear.weight"].any()


def test_the_bound_is_its_equation(model, batch):
    keys = sentence_keys(batch, 5)
    memory = model.encode(batch.source)
    elbo, kl = evidence_lower_bound(model, memory, batch, 3, keys)
    for row in range(4):
        pair = one(batch, row)
        memory_of_row = model.encode(pair.source)
        prior, posterior = distributions(model, memory_of_row, pair.target)
        expected = torch.distributions.kl_divergence(posterior, prior).sum()
        assert kl[row].item() == pytest.approx(expected.item(), rel=1e-9)
        draws = [normal(keys[row : row + 1], (pair.source.size(1), 3), stream) for stream in range(3)]
        joint = [
            log_joint(model, memory_of_row, posterior.mean + posterior.stddev * noise, pair.target) for noise in draws
        ]
        assert elbo[row].item() == pytest.approx((sum(joint) / 3 - expected).item(), rel=1e-9)


def test_the_bound_is_below_the_marginal(model, batch):
    """Many samples of the prior estimate log p(y, l|x) = log E_p[p(y, l|x,z)]."""
    pair = one(batch, 1)
    memory = model.encode(pair.source)
    elbo, _ = evidence_lower_bound(model, memory, pair, 50, torch.tensor([7]))
    mean, deviation = model.prior(memory, memory.mask)
    rows = torch.zeros(4000, dtype=torch.int64)
    noise = torch.randn(4000, *mean.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        joint = model.log_likelihood(memory.select(rows), mean + deviation * noise, pair.target.expand(4000, -1))
    assert elbo.item() < torch.logsumexp(joint, 0).item() - math.log(4000)


def test_an_empty_output_and_one_beyond_the_positions_have_a_posterior(model):
    source = pairs([4, 3], [1, 1]).source
    memory = model.encode(source)
    empty, padding, full = (
        model.posterior(memory, target, memory.mask)[0]
        for target in (torch.zeros(2, 0, dtype=torch.int64), torch.full((2, 3), PAD), torch.full((2, 64), 5))
    )
    assert torch.allclose(empty, padding, atol=1e-12)
    assert torch.isfinite(full).all()


def test_a_teacher_gives_encoders_decoders_and_embeddings():
    teacher, model = transformer(seed=1), lanmt(posterior_layers=2)
    tensors = weights_of(teacher)
    copied = start(model, tensors, "transformer", None)
    parameters = dict(model.named_parameters())
    for name, own_name in (
        ("encoder.layers.1.feed_forward.inner.weight", "latents.target_encoder.layers.1.feed_forward.inner.weight"),
        ("encoder.layers.0.self_attention.output.bias", "encoder.layers.0.self_attention.output.bias"),
        ("decoder.layers.1.cross_attention.query.weight", "decoder.layers.1.cross_attention.query.weight"),
        ("decoder.norm.weight", "latents.source_decoder.norm.weight"),
        ("target_embedding.weight", "target_embedding.weight"),
    ):
        assert torch.equal(parameters[own_name], tensors[name]) and own_name in copied
    fresh = set(parameters) - set(copied)
    heads = ("latents.prior_head", "latents.posterior_head", "latents.projection", "length.", "transformation.")
    assert fresh and all(name.startswith(heads) for name in fresh)
    assert start(model, None, None, None) is None
    other = lanmt(seed=9)
    assert set(start(other, weights_of(lanmt(seed=2)), "lanmt", None)) == set(dict(other.named_parameters()))
    with pytest.raises(ConfigError) as refused:
        start(model, weights_of(transformer(target_size=12)), "transformer", None)
    assert refused.value.setting == "init_from"


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_refiners_learn_delta_steps_at_source_positions(kind, batch):
    frozen, network = lanmt(seed=3).requires_grad_(False), refiner(kind)
    config = ScoreMatchingConfig(delta_steps=2, pre_update_probability=0.0)
    terms = score_matching(network, batch, context(seed=3, frozen=frozen), config)
    mask = batch.source_mask
    z, goal, memory = latents_and_goals(network, batch, mask, context(seed=3, frozen=frozen), config)
    second = delta_step(frozen, memory, delta_step(frozen, memory, z, mask), mask)
    assert torch.allclose(goal, second, atol=1e-12) and not torch.equal(goal, z)
    direction = network.direction(memory, z, mask, differentiable=True)
    squared = ((direction - (goal - z)) ** 2)[mask].sum() - ((goal - z) ** 2)[mask].sum()
    assert terms.loss.item() == pytest.approx((squared / mask.sum()).item(), rel=1e-9)
    copied = refiners.start(refiner(kind), None, None, frozen)
    assert {"latent_projection.weight", "stack.layers.0.cross_attention.query.weight"} <= set(copied)
    hypotheses = translate(frozen, batch.source, kind, 2, 0.5, network)
    for row in range(4):
        single = translate(frozen, one(batch, row).source, kind, 2, 0.5, network)
        assert single.tokens[0] == hypotheses.tokens[row]


def test_validation_is_that_of_sentences_one_by_one(model, batch):
    dev = PairsDev(batch)
    figures = dev.figures(model, validate(ElboConfig()))
    keys = dev.keys(batch)
    elbo = kl = exact = 0.0
    outputs, moved = [], []
    for row in range(4):
        pair = one(batch, row)
        memory = model.encode(pair.source)
        bound, divergence = evidence_lower_bound(model, memory, pair, 4, keys[row : row + 1])
        elbo, kl = elbo + bound.item(), kl + divergence.item()
        (_, second), (length, _) = naive(model, pair.source, 1)
        exact += length == pair.target.size(1)
        moved.append(second)
        mean = posterior_mean(model, memory, pair.target[0].tolist())
        length = max(1, int(length_scores(model, memory, mean).argmax()) - 4 + pair.source.size(1) - 1)
        outputs.append(words_at(model, memory, mean, length))
    bleu = lambda rows: sacrebleu.corpus_bleu(dev.detokenise(rows), [dev.references]).score  # noqa: E731
    assert figures["dev_elbo"] == pytest.approx(elbo / batch.num_target_tokens, rel=1e-9)
    assert figures["dev_kl"] == pytest.approx(kl / int(batch.source_mask.sum()), rel=1e-9)
    assert figures["dev_length_accuracy"] == exact / 4
    assert figures["dev_bleu_posterior"] == pytest.approx(bleu(outputs))
    assert figures["dev_bleu_delta"] == pytest.approx(bleu(moved))
    assert figures["dev_bleu_carried"] == pytest.approx(bleu(outputs) - figures["dev_bleu"])
    assert all(map(math.isfinite, figures.values()))
    # However dev is cut into batches.
    in_other_batches = PairsDev(batch, [3], [0, 1, 2]).figures(model, validate(ElboConfig()))
    assert in_other_batches == pytest.approx(figures, rel=1e-9)
    assert validate(ElboConfig()).criterion == "dev_elbo"


def test_latents_without_a_gap_carry_nothing(batch):
    """With a posterior that is the prior, the KL is 0 and both translations are alike: what a collapse looks like."""
    model = lanmt(seed=3)
    model.posterior = lambda memory, _target, mask: model.prior(memory, mask)
    figures = PairsDev(batch).figures(model, validate(ElboConfig()))
    assert figures["dev_kl"] == pytest.approx(0, abs=1e-12) and figures["dev_bleu_carried"] == 0
