"""Samples of the prior: what they depend on, and that one step is the step of the search."""

import miniatures
import pytest
import torch
from miniatures import decode, search, translate

from workflow_src.evaluation.analyses.inputs import sentence_generator
from workflow_src.evaluation.analyses.samples.measure import sample_and_refine
from workflow_src.types import EOS

SOURCE = [4, 7, 5, 9, EOS]
CPU = torch.device("cpu")


def best_words(model, memory, z, mask) -> list[int]:
    """The best words of a sentence, of a model without end symbols."""
    return (decode(model, memory, z, mask)[0, :, EOS + 1 :].argmax(-1) + EOS + 1).tolist()


def certain(model):
    """The model with a prior of no width."""
    prior = model.prior
    model.prior = lambda memory, mask: (prior(memory, mask)[0], torch.zeros_like(prior(memory, mask)[1]))
    return model


@pytest.mark.parametrize("make", [miniatures.lvm, miniatures.ending])
@pytest.mark.parametrize("name", ["delta", "score", "energy"])
def test_a_sample_of_a_prior_without_width_is_its_mean(name, make):
    refiner = miniatures.refiner(name) if name != "delta" else None
    model = certain(make())
    before, after = sample_and_refine(search(name, model, 0.7, refiner, steps=2), SOURCE, 1, 0, CPU)
    trace = translate(model, torch.tensor([SOURCE]), name, 2, 0.7, refiner, trace=True).traces
    assert (before, after) == (trace[0][0], trace[2][0])


def test_the_draw_is_the_priors_and_depends_on_seed_and_sentence():
    model, refiner = miniatures.lvm(), miniatures.refiner("score")
    one_step = search("score", model, 1.0, refiner, steps=1)
    before, after = sample_and_refine(one_step, SOURCE, 3, 17, CPU)
    with torch.no_grad():
        memory = model.encode(torch.tensor([SOURCE]))
        mask = torch.ones((1, len(before)), dtype=torch.bool)
        mean, deviation = model.prior(memory, mask)
        z = mean + deviation * torch.randn(mean.shape, generator=sentence_generator(3, 17))
        assert best_words(model, memory, z, mask) == before
        z = z + refiner.direction(memory, z, mask)
        assert best_words(model, memory, z, mask) == after
    assert sample_and_refine(one_step, SOURCE, 3, 17, CPU) == (before, after)
    outputs = {tuple(sample_and_refine(one_step, SOURCE, seed, 17, CPU)[0]) for seed in range(20)}
    assert len(outputs) > 1
