"""Score and energy networks on the latents of a one-pass model, and what validation reports of such latents."""

from __future__ import annotations

import math

import pytest
import sacrebleu
import torch
from miniatures import PairsDev, context, nat, one, padded, pairs, refiner
from torch import nn

from workflow_src.families import refiners
from workflow_src.families.nat import NatObjectiveConfig
from workflow_src.families.nat.validation import validate
from workflow_src.losses.axe import axe_loss
from workflow_src.losses.ctc import ctc_loss
from workflow_src.losses.score_matching import score_matching
from workflow_src.losses.settings import ScoreMatchingConfig
from workflow_src.types import PAD, Batch

CONFIG = ScoreMatchingConfig(delta_steps=2, pre_update_probability=0.0)


def base(**settings) -> nn.Module:
    return nat(latent="vae", latent_dim=3, seed=5, **settings).requires_grad_(False)


def batch() -> Batch:
    return pairs([4, 1, 6, 5], [3, 2, 1, 6], (13, 10))


def test_padding_changes_no_loss():
    frozen, network = base(), refiner("score")
    terms, wider = (score_matching(network, x, context(frozen=frozen), CONFIG) for x in (batch(), padded(batch(), 3)))
    assert terms.count == wider.count and terms.loss.item() == pytest.approx(wider.loss.item(), rel=1e-11)


def dev() -> PairsDev:
    return PairsDev(batch())


@pytest.mark.parametrize("loss", ["ctc", "axe", "ce"])
def test_validation_is_that_of_sentences_one_by_one(loss):
    model, data, settings = base(loss=loss), batch(), NatObjectiveConfig()
    nll = divergence = tokens = positions = exact = 0.0
    outputs = []
    for row in range(4):
        pair = one(data, row)
        memory = model.encode(pair.source)
        mean, deviation = model.posterior(memory, pair.target, memory.mask)
        prior = torch.distributions.Normal(*model.prior(memory, memory.mask))
        posterior = torch.distributions.Normal(mean, deviation)
        divergence += torch.distributions.kl_divergence(posterior, prior).sum().item()
        slots = None if loss == "ctc" else torch.tensor([pair.target.size(1)])
        hidden, mask = model.hidden(memory, slots, mean)
        weight, bias = model.target_embedding.weight, model.output_bias
        if loss == "ctc":
            nll += ctc_loss(hidden, weight, bias, mask, pair.target, model.blank)[0].item()
        elif loss == "axe":
            nll += axe_loss(hidden, weight, bias, mask, pair.target, model.blank, settings.skip_penalty)[1].item()
        else:
            nll += nn.functional.cross_entropy(hidden[0] @ weight.T + bias, pair.target[0], reduction="sum").item()
        if loss != "ctc":
            exact += int(model.length.predict(memory)) == pair.target.size(1)
        tokens, positions = tokens + pair.target.size(1), positions + pair.source.size(1)
        # BLEU compares with the prior, which has no length of the reference.
        hidden, mask = model.hidden(memory, None, mean)
        path = model.output(model.logits(hidden).argmax(-1), mask)[0]
        outputs.append([i for i in path.tolist() if i != PAD])
    figures = dev().figures(model, validate(settings))
    assert figures["dev_loss"] == pytest.approx((nll + divergence) / tokens, rel=1e-6)
    assert figures["dev_kl"] == pytest.approx(divergence / positions, rel=1e-6)
    if loss != "ctc":
        assert figures["dev_length_accuracy"] == exact / 4
    posterior = sacrebleu.corpus_bleu(dev().detokenise(outputs), [dev().references]).score
    assert figures["dev_bleu_posterior"] == pytest.approx(posterior)
    assert figures["dev_bleu_carried"] == pytest.approx(posterior - figures["dev_bleu"])
    assert all(map(math.isfinite, figures.values()))


def test_without_latents_nothing_more_is_reported():
    assert set(dev().figures(nat(), validate(NatObjectiveConfig()))) == {"dev_loss", "dev_unreachable", "dev_bleu"}


def test_refiners_are_validated_on_such_a_base():
    figures = dev().figures(refiner("score"), refiners.validate(CONFIG, base()))
    assert -1 <= figures["dev_cosine_noise0"] <= 1 and figures["dev_offset_norm"] > 0 and "dev_bleu" in figures


def test_a_refiner_starts_from_the_decoder_of_its_base():
    """Its layers have the decoder's shapes; the projection of latents is that of the base."""
    network, frozen = refiner("score"), base()
    copied = refiners.start(network, None, None, frozen)
    assert {"latent_projection.weight", "stack.layers.0.cross_attention.query.weight"} <= set(copied)
    parameters = dict(network.named_parameters())
    assert torch.equal(
        parameters["stack.layers.1.feed_forward.inner.weight"], frozen.decoder.layers[1].feed_forward.inner.weight
    )
    assert torch.equal(parameters["latent_projection.weight"], frozen.latents.projection.weight)
