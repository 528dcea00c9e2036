"""Samples of the prior: what they depend on, and that one step is the step of the search."""

import miniatures
import pytest
import torch
from miniatures import translate_batch

from workflow_src.decoding.latent import best_tokens
from workflow_src.evaluation.analyses.inputs import sentence_generator
from workflow_src.evaluation.analyses.networks import Procedure
from workflow_src.evaluation.analyses.samples.measure import sample_and_refine
from workflow_src.types import EOS

SOURCE = [4, 7, 5, 9, EOS]
CPU = torch.device("cpu")


def certain(model):
    """The model with a prior of no width."""
    prior = model.prior
    model.prior = lambda memory, mask: (prior(memory, mask)[0], torch.zeros_like(prior(memory, mask)[1]))
    return model


@pytest.mark.parametrize("make", [miniatures.lvm, miniatures.ending])
@pytest.mark.parametrize("search", ["delta", "score", "energy"])
def test_a_sample_of_a_prior_without_width_is_its_mean(search, make):
    refiner = miniatures.refiner(search) if search != "delta" else None
    model = certain(make())
    procedure = Procedure(model, miniatures.step_maker(model, search, 0.7, refiner), 2)
    before, after = sample_and_refine(procedure, SOURCE, 1, 0, CPU)
    trace = translate_batch(model, torch.tensor([SOURCE]), search, 2, 0.7, refiner, trace=True).traces
    assert (before, after) == (trace[0][0], trace[2][0])


def test_the_draw_is_the_priors_and_depends_on_seed_and_sentence():
    model, refiner = miniatures.lvm(), miniatures.refiner("score")
    procedure = Procedure(model, miniatures.step_maker(model, "score", 1.0, refiner), 1)
    before, after = sample_and_refine(procedure, SOURCE, 3, 17, CPU)
    with torch.no_grad():
        memory = model.encode(torch.tensor([SOURCE]))
        mask = torch.ones((1, len(before)), dtype=torch.bool)
        mean, deviation = model.prior(memory, mask)
        z = mean + deviation * torch.randn(mean.shape, generator=sentence_generator(3, 17))
        assert best_tokens(model, memory, z, mask)[0].tolist() == before
        z = z + refiner.direction(memory, z, mask)
        assert best_tokens(model, memory, z, mask)[0].tolist() == after
    assert sample_and_refine(procedure, SOURCE, 3, 17, CPU) == (before, after)
    outputs = {tuple(sample_and_refine(procedure, SOURCE, seed, 17, CPU)[0]) for seed in range(20)}
    assert len(outputs) > 1
