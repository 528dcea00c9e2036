"""Dev figures: against direct computation, within their bounds, and the same each time."""

import dataclasses
import math

import pytest
import sacrebleu
import torch
from miniatures import decode
from refusals import fields_of

import workflow_src.families.autoregressive as transformer
import workflow_src.families.lvm.validation as lvm
from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.data.batching import collate
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.subwords import learn
from workflow_src.decoding.refinement import delta_step
from workflow_src.decoding.search import searching
from workflow_src.errors import DeclarationError
from workflow_src.families import refiners
from workflow_src.families.build import build
from workflow_src.families.lvm.model import LatentVariableModel
from workflow_src.losses.settings import CrossEntropyConfig, ElboConfig, ScoreMatchingConfig
from workflow_src.nn.weights import weights_of
from workflow_src.records.atomic import write_json
from workflow_src.runtime.processes import Group
from workflow_src.training import dev as dev_module
from workflow_src.training.dev import open_dev
from workflow_src.training.systems import load_system
from workflow_src.types import DevFigures, Hypotheses, Measured


@pytest.fixture(autouse=True)
def several_batches(monkeypatch):
    """Of few sentences each, so that figures join unequal batches."""
    monkeypatch.setattr(dev_module, "BATCH_TOKENS", 50)


def untrained(family, tiny, tiny_settings, **model):
    torch.manual_seed(8)
    return build(family, tiny_settings(family, model=model)["model"], tiny.sizes).eval()


def same_twice(validation, model):
    """Figures twice, with other random numbers drawn between; nothing of training is touched."""
    weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    torch.manual_seed(1)
    first, drawn = validation.figures(model), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.get_rng_state())
    torch.rand(100)
    assert validation.figures(model) == first
    assert validation.criterion in first
    assert all(torch.equal(tensor, weights[name]) for name, tensor in weights_of(model).items())
    assert all(parameter.grad is None for parameter in model.parameters())
    return first


def test_the_rehearsal_computes_the_largest_shapes_of_a_validation(dev, tiny, tiny_settings):
    shapes = {"loss": [], "search": []}

    def measure(_model, batch, _keys):
        shapes["loss"].append(batch.source.numel() + batch.target.numel())
        return Measured({})

    def search(_model, source):
        shapes["search"].append(source.numel())
        return Hypotheses([[] for _ in source], [0.0] * len(source))

    validation = dev.validation(DevFigures(measure, {"dev_bleu": search}, "dev_bleu"))
    model = untrained("transformer", tiny, tiny_settings)
    validation.figures(model)
    largest = {name: max(sizes) for name, sizes in shapes.items()}
    for sizes in shapes.values():
        sizes.clear()
    validation.rehearse(model)
    assert {name: max(sizes) for name, sizes in shapes.items()} == largest


@pytest.mark.parametrize(
    ("criterion", "means", "differences", "mentions"),
    [
        ("dev_blue", ("dev_loss",), {}, ("dev_blue", "dev_bleu", "dev_loss")),
        ("dev_gain", ("dev_loss",), {"dev_gain": ("dev_bleu", "dev_los")}, ("dev_gain", "dev_bleu, dev_loss")),
        ("dev_bleu", ("step",), {}, ("step", "learning_rate")),
    ],
)
def test_figures_that_a_family_declares_wrongly_are_refused_before_training(
    dev, tiny, tiny_settings, criterion, means, differences, mentions
):
    def measure(_model, batch, _keys):
        return Measured(dict.fromkeys(means, (1.0, 1)))

    def search(_model, source):
        return Hypotheses([[] for _ in source], [0.0] * len(source))

    validation = dev.validation(DevFigures(measure, {"dev_bleu": search}, criterion, differences=differences))
    with pytest.raises(DeclarationError) as refused:
        validation.rehearse(untrained("transformer", tiny, tiny_settings))
    assert fields_of(refused.value, {"mentions": mentions}) == {"mentions": mentions}


def test_bleu_of_the_references_themselves_is_100(dev, tiny):
    rows = {tuple(tiny.dev.source(row).tolist()): tiny.dev.target(row).tolist() for row in range(8)}

    def oracle(source):
        return Hypotheses([rows[tuple(i for i in line if i > 2)] for line in source.tolist()], [0.0] * len(source))

    assert dev.bleu_of(dev.translate(oracle)) == pytest.approx(100)
    assert dev.bleu_of([[]] * dev.sentences) == 0


def test_bleu_while_training_is_counted_by_the_tokeniser_of_the_settings(tiny, runtime):
    files = tiny.corpus / "dev.reference.en", tiny.corpus / "corpus.json"
    dev = open_dev(tiny.dev, *files, tiny.subwords, runtime, Group(), None, "char", False)
    # Half of every line: no word of it is missed, and single characters count.
    rows = [tiny.dev.target(row).tolist()[: len(tiny.dev.target(row)) // 2 + 1] for row in range(dev.sentences)]
    expected = {
        name: sacrebleu.corpus_bleu(dev.detokenise(rows), [dev.references], tokenize=name).score
        for name in ("char", "13a")
    }
    assert dev.bleu_of(rows) == pytest.approx(expected["char"]) != pytest.approx(expected["13a"])


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reversed"])
def test_bleu_of_perfect_outputs_is_100_where_placeholders_change_their_order(
    direction, joint, runtime, tmp_path, run_stage
):
    lines = [(f"Öffne %1 und %2 im Haus {word} .", f"Open %2 and %1 in house {word} .") for word in "abcdefgh"]
    for code, side in zip(("de", "en"), zip(*lines, strict=True), strict=True):
        (tmp_path / f"dev.{code}").write_text("".join(f"{line}\n" for line in side))
    normalisation = NormalisationConfig().model_dump(mode="json")
    write_json(tmp_path / "corpus.json", {"normalisation": normalisation, "source": "de", "target": "en"})
    texts = tmp_path / "dev.de", tmp_path / "dev.en"
    config = SubwordsConfig(vocabulary_size="auto", joint=joint)
    subwords = learn(config, *texts, tmp_path / "subwords", placeholders=["variables", "unknown"])
    words = [
        "--settings",
        '{"max_length": 50}',
        "--subwords",
        str(tmp_path / "subwords"),
        "--languages",
        "de",
        "en",
        "--split",
        "dev",
    ]
    words += ["--source", str(texts[0]), "--target", str(texts[1]), "--output-prefix", str(tmp_path / "encoded")]
    run_stage("encode", words)
    corpus, reference, backwards = EncodedCorpus.open(tmp_path / "encoded"), texts[1], direction == "reversed"
    if backwards:
        corpus, subwords, reference = corpus.reversed(), subwords.reversed(), texts[0]
    dev = open_dev(corpus, reference, tmp_path / "corpus.json", subwords, runtime, Group(), None, "13a", backwards)
    assert dev.bleu_of([corpus.target(row).tolist() for row in range(8)]) == pytest.approx(100)


def test_dev_batches_hold_every_pair_once_in_one_order(dev):
    orders = [[batch.indices for batch in dev.batches()] for _ in range(2)]
    assert len(set(map(len, orders[0]))) > 1
    assert orders[0] == orders[1] and sorted(row for rows in orders[0] for row in rows) == list(range(8))


def test_transformer_figures_are_those_of_sentences_one_by_one(dev, tiny, systems):
    model, _ = load_system(systems["transformer"])
    figures = same_twice(dev.validation(transformer.validate(CrossEntropyConfig())), model)
    total = tokens = 0
    hypotheses = []
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            total -= float(model.log_probabilities(batch.source, batch.target).double().sum())
            tokens += batch.target.numel() + 1
            hypotheses += searching("greedy")(model, batch.source).tokens
    assert figures["dev_loss"] == pytest.approx(total / tokens, rel=1e-5)
    lines = tiny.subwords.decode_target(hypotheses[:5])
    assert figures["dev_bleu"] == pytest.approx(sacrebleu.corpus_bleu(lines, [dev.references[:5]]).score)


def test_an_untrained_transformer_is_about_as_good_as_chance(dev, tiny, tiny_settings):
    model = untrained("transformer", tiny, tiny_settings)
    figures = dev.figures(model, transformer.validate(CrossEntropyConfig()))
    assert 0.5 * math.log(62) < figures["dev_loss"] < 2 * math.log(62) and figures["dev_bleu"] < 10


@pytest.mark.parametrize("end", [False, True])
def test_lvm_figures_are_those_of_sentences_one_by_one(dev, tiny, tiny_settings, end):
    """ELBO and KL a position, an end symbol's counted; the reconstruction is exact where the posterior is certain."""
    model = untrained("lvm", tiny, tiny_settings, end_symbol=end)
    with torch.no_grad():
        model.posterior_head.linear.weight[4:] = 0
        model.posterior_head.linear.bias[4:] = -60
        # Some positions are said to be empty.
        model.output_bias[2] += 0.3
        # The most probable length of an untrained model is right for none of these sentences.
        differences = [len(tiny.dev.target(row)) - len(tiny.dev.source(row)) for row in range(8)]
        model.length.outer.bias[model.length.outer.bias.numel() // 2 + max(differences, key=differences.count)] += 5
    figures = same_twice(dev.validation(lvm.validate(ElboConfig())), model)
    bound = divergence = positions = exact = 0.0
    reconstructed, from_prior = [], []
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            target = model.whole_target(batch.target)
            mask = torch.ones_like(target, dtype=torch.bool)
            memory = model.encode(batch.source)
            mean, _ = model.posterior(memory, target, mask)
            prior, deviation = model.prior(memory, mask)
            kl = float(
                torch.distributions.kl_divergence(
                    torch.distributions.Normal(mean, torch.full_like(mean, 1e-4)),
                    torch.distributions.Normal(prior, deviation),
                ).sum()
            )
            logits = decode(model, memory, mean, mask)[0]
            likelihood = -float(torch.nn.functional.cross_entropy(logits, target[0], reduction="sum"))
            bound, divergence, positions = bound + likelihood - kl, divergence + kl, positions + target.size(1)
            reconstructed.append(allowed_words(logits, end))
            (length,) = model.length.predict(memory).tolist()
            exact += length == batch.target.size(1)
            mask = torch.ones(1, length + end, dtype=torch.bool)
            from_prior.append(allowed_words(decode(model, memory, model.prior(memory, mask)[0], mask)[0], end))
    assert figures["dev_kl"] == pytest.approx(divergence / positions, rel=1e-5)
    assert figures["dev_elbo"] == pytest.approx(bound / positions, rel=1e-4)
    assert 0 < exact < 8 and figures["dev_length_accuracy"] == exact / 8
    assert reconstructed != from_prior
    for name, translations in (("dev_bleu_posterior", reconstructed), ("dev_bleu", from_prior)):
        lines = tiny.subwords.decode_target(translations[:5])
        assert figures[name] == pytest.approx(sacrebleu.corpus_bleu(lines, [dev.references[:5]]).score)


STEP = 30.0


def allowed_words(logits, end):
    """The most probable words of one sentence's logits (T, V): end symbols are dropped, or cannot be chosen."""
    first = 2 if end else 3
    return [token for token in (logits[:, first:].argmax(-1) + first).tolist() if token != 2]


def test_the_reconstruction_is_an_average_over_samples_of_the_posterior(dev, tiny, tiny_settings, monkeypatch):
    monkeypatch.setattr(lvm, "DEV_SAMPLES", 100)
    model = untrained("lvm", tiny, tiny_settings)
    with torch.no_grad():
        # Deviations near 2: samples decode to other words than the mean.
        model.posterior_head.linear.bias[4:] += 2
    figures = dev.figures(model, lvm.validate(ElboConfig()))
    means, errors, positions = [], [], 0
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row] * 400)
            mask = torch.ones_like(batch.target, dtype=torch.bool)
            memory = model.encode(batch.source)
            mean, deviation = model.posterior(memory, batch.target, mask)
            z = mean + deviation * torch.randn(mean.shape, generator=generator)
            logits = decode(model, memory, z, mask).transpose(1, 2)
            losses = -torch.nn.functional.cross_entropy(logits, batch.target, reduction="none").sum(1)
            means.append(float(losses.mean()))
            # Of the 400 samples here and of the 100 of the figure.
            errors.append(float(losses.var()) * (1 / 400 + 1 / 100))
            positions += batch.target.size(1)
    error = math.sqrt(sum(errors)) / positions
    assert figures["dev_elbo"] + figures["dev_kl"] == pytest.approx(sum(means) / positions, abs=4 * error)
    at_the_mean = 0.0
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            mask = torch.ones_like(batch.target, dtype=torch.bool)
            memory = model.encode(batch.source)
            logits = decode(model, memory, model.posterior(memory, batch.target, mask)[0], mask)[0]
            at_the_mean -= float(torch.nn.functional.cross_entropy(logits, batch.target[0], reduction="sum"))
    # Far enough apart for the figure to distinguish samples from the mean.
    assert abs(at_the_mean - sum(means)) / positions > 8 * error


class Copying(LatentVariableModel):
    """A latent-variable model whose latent is the target itself: q copies y, the decoder reads it, p knows nothing."""

    def posterior(self, memory, target, mask):
        z = torch.nn.functional.one_hot(target, self.output_bias.size(0)).float()
        return z, torch.full_like(z, 1e-3)

    def prior(self, memory, mask):
        z = torch.zeros(*mask.shape, self.output_bias.size(0))
        z[..., 7] = 1
        return z, torch.ones_like(z)

    def hidden(self, memory, z, mask):
        return z


def copying(model):
    """The model as one whose logits are 50 times its latents."""
    model.__class__ = Copying
    model.target_embedding = torch.nn.Embedding.from_pretrained(50 * torch.eye(model.output_bias.size(0)))
    return model


@pytest.mark.parametrize("end", [False, True])
def test_posterior_bleu_is_100_when_latents_carry_the_sentence(dev, tiny, tiny_settings, end):
    model = copying(untrained("lvm", tiny, tiny_settings, end_symbol=end))
    figures = dev.figures(model, lvm.validate(ElboConfig()))
    assert figures["dev_bleu_posterior"] == pytest.approx(100) and figures["dev_bleu"] < 10
    # The reconstruction is certain, so the bound is all KL; at each position
    # KL = (sum of v + |difference|^2 - 1 - log v) / 2 with difference 2 (or 0 where the word is number 7).
    v = 1e-6
    count = tiny.dev.target_lengths.sum() + 8 * end
    different = sum((tiny.dev.target(row) != 7).sum() for row in range(8)) + 8 * end
    kl = 0.5 * (62 * (v - 1 - math.log(v)) + 2 * different / count)
    assert tiny.sizes["target"] == 62
    assert figures["dev_kl"] == pytest.approx(kl, rel=1e-4)
    assert figures["dev_elbo"] == pytest.approx(-kl, rel=1e-4)


@pytest.mark.parametrize("family", ["score", "energy"])
def test_refiner_figures_are_those_of_sentences_one_by_one(dev, tiny, tiny_settings, frozen, family):
    """At the prior mean, where no noise is drawn."""
    # Over characters: the miniature's words are none of the references'.
    dev = dataclasses.replace(dev, tokeniser="char")
    model, frozen = untrained(family, tiny, tiny_settings), frozen.eval()
    objective = ScoreMatchingConfig(step_size=STEP, delta_steps=2)
    validation = dev.validation(refiners.validate(objective, frozen))
    # At noise 1 the cosine ranks networks otherwise than BLEU does.
    assert validation.criterion == "dev_cosine_noise0" and not validation.smallest
    figures = same_twice(validation, model)
    cosines, squares, norms = [], [], []
    by_size: dict[float, list[list[int]]] = {STEP: [], 1.0: []}
    with torch.no_grad():
        for row in range(8):
            batch = collate(tiny.dev, [row])
            mask = torch.ones_like(frozen.whole_target(batch.target), dtype=torch.bool)
            memory = frozen.encode(batch.source)
            start, _ = frozen.prior(memory, mask)
            goal = start
            for _ in range(2):
                words = decode(frozen, memory, goal, mask)[..., 2:].argmax(-1) + 2
                goal, _ = frozen.posterior(memory, words, mask)
            direction, offset = model.direction(memory, start, mask), goal - start
            cosines.append(torch.nn.functional.cosine_similarity(direction.flatten(), offset.flatten(), 0))
            squares.append((direction - offset).square().sum(-1)[0])
            norms.append(offset.square().sum(-1).sqrt()[0])
            (length,) = frozen.length.predict(memory).tolist()
            mask = torch.ones(1, length + 1, dtype=torch.bool)
            z, _ = frozen.prior(memory, mask)
            for size, translations in by_size.items():
                moved = z + size * model.direction(memory, z, mask)
                translations.append(allowed_words(decode(frozen, memory, moved, mask)[0], True))
    assert figures["dev_cosine_noise0"] == pytest.approx(float(torch.stack(cosines).mean()), rel=1e-4)
    assert figures["dev_squared_error_noise0"] == pytest.approx(float(torch.cat(squares).mean()), rel=1e-4)
    assert figures["dev_offset_norm_noise0"] == pytest.approx(float(torch.cat(norms).mean()), rel=1e-4)
    bleu, other_bleu = (
        sacrebleu.corpus_bleu(
            tiny.subwords.decode_target(translations[:5]), [dev.references[:5]], tokenize="char"
        ).score
        for translations in by_size.values()
    )
    # Far enough apart for the figure to depend on the step size.
    assert figures["dev_bleu"] == pytest.approx(bleu) != pytest.approx(other_bleu)


class Narrow:
    """A latent-variable model whose prior has these deviations."""

    def __init__(self, model, deviation):
        self.model, self.deviation = model, deviation

    def __getattr__(self, name):
        return getattr(self.model, name)

    def prior(self, memory, mask):
        mean, _ = self.model.prior(memory, mask)
        return mean, torch.full_like(mean, self.deviation)


def test_refiners_are_measured_at_samples_of_the_prior_too(dev, tiny, tiny_settings, frozen):
    model, frozen = untrained("score", tiny, tiny_settings), frozen.eval()
    names = ("dev_cosine", "dev_squared_error", "dev_offset_norm")
    certain, noisy = (
        dev.figures(model, refiners.validate(ScoreMatchingConfig(), Narrow(frozen, deviation)))
        for deviation in (1e-6, 10.0)
    )
    for name in names:
        assert certain[name] == pytest.approx(certain[f"{name}_noise0"], rel=1e-3)
        assert noisy[f"{name}_noise0"] == pytest.approx(certain[f"{name}_noise0"])
    # From 10 deviations away in each of 4 dimensions, the offset back is about 20 long.
    assert 15 < noisy["dev_offset_norm"] < 25 and noisy["dev_offset_norm_noise0"] < 5


class Perfect(torch.nn.Module):
    """A refiner that knows where delta goes, or stays, or goes the other way."""

    def __init__(self, frozen, sign):
        super().__init__()
        self.frozen, self.sign = frozen, sign

    def direction(self, memory, z, mask, differentiable=False):
        goal = z
        for _ in range(4):
            goal = delta_step(self.frozen, memory, goal, mask)
        return self.sign * (goal - z)


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_cosine_and_error_of_a_perfect_and_of_a_contrary_refiner(dev, frozen, sign):
    figures = dev.figures(Perfect(frozen, sign), refiners.validate(ScoreMatchingConfig(), frozen.eval()))
    assert figures["dev_cosine"] == pytest.approx(sign, abs=1e-5)
    assert figures["dev_cosine_noise0"] == pytest.approx(sign, abs=1e-5)
    if sign == 1:
        assert figures["dev_squared_error"] == pytest.approx(0, abs=1e-9)


def test_a_sentence_that_delta_does_not_move_has_no_cosine(dev, tiny, tiny_settings, frozen, monkeypatch):
    """Means leave it out."""

    def cosines(direction, offset, mask):
        values = torch.full((len(mask),), 0.5)
        values[0] = math.nan
        return values

    monkeypatch.setattr(refiners, "cosine", cosines)
    model = untrained("score", tiny, tiny_settings)
    figures = dev.figures(model, refiners.validate(ScoreMatchingConfig(), frozen.eval()))
    assert figures["dev_cosine"] == figures["dev_cosine_noise0"] == 0.5
