"""Bounds of outputs against their definition, and where outputs stand still."""

from __future__ import annotations

import pytest
import torch
from miniatures import decode, ending, lanmt, lvm

from workflow_src.evaluation.analyses.convergence import ConvergenceSettings
from workflow_src.evaluation.analyses.convergence.measure import bounds, point, standstill, stopped
from workflow_src.evaluation.analyses.inputs import sentence_generator
from workflow_src.types import EOS

SOURCE = [4, 7, 9, EOS]
OUTPUTS = [[5, 6, 7], [8], [5, 6, 7], [3, 4, 5, 6, 9]]
CPU = torch.device("cpu")


def draws(samples):
    return ConvergenceSettings(samples=samples, seed=3)


@pytest.mark.parametrize("kind", ["lvm", "ending", "lanmt"])
def test_bounds_are_expected_likelihoods_less_the_divergence(kind):
    model = {"lvm": lvm, "ending": ending, "lanmt": lanmt}[kind](seed=4)
    lower_bounds = bounds(model, SOURCE, OUTPUTS, draws(6), 11, CPU)
    assert lower_bounds[0] == lower_bounds[2]
    memory = model.encode(torch.tensor([SOURCE]))
    for output, value in zip(OUTPUTS, lower_bounds, strict=True):
        target = torch.tensor([output])
        if kind == "lanmt":
            mask, labels = memory.mask, target
        else:
            labels = torch.tensor([[*output, EOS]]) if kind == "ending" else target
            mask = torch.ones_like(labels, dtype=torch.bool)
        prior, posterior = model.prior(memory, mask), model.posterior(memory, labels, mask)
        q = torch.distributions.Normal(*posterior)
        divergence = torch.distributions.kl_divergence(q, torch.distributions.Normal(*prior)).sum()
        generator, total = sentence_generator(3, 11), 0.0
        for noise in torch.randn((6, *q.mean.shape[1:]), generator=generator).double():
            z = q.mean + q.stddev * noise
            if kind == "lanmt":
                total += model.log_likelihood(memory, z, target).item()
            else:
                scores = decode(model, memory, z, mask)[0].log_softmax(-1)
                total += sum(scores[place, word].item() for place, word in enumerate(labels[0].tolist()))
        assert value == pytest.approx(total / 6 - divergence.item(), rel=1e-6)


def test_bounds_depend_on_their_sentence_alone():
    model = lanmt(seed=4)
    together = bounds(model, SOURCE, OUTPUTS, draws(4), 11, CPU)
    assert [bounds(model, SOURCE, [output], draws(4), 11, CPU)[0] for output in OUTPUTS] == together
    assert bounds(model, SOURCE, OUTPUTS, draws(4), 12, CPU) != together


def test_outputs_stand_still_from_the_first_step_on_after_which_nothing_changes():
    """A network's output may stand still for a step and change again."""
    assert standstill([[1], [1], [2], [2]]) == 3
    assert standstill([[1], [1], [1], [2]]) is None and standstill([[1], [1], [1]]) == 1
    assert standstill([[1], [2], [3, 1], [3, 1]]) == 3
    assert standstill([[1], [2], [1]]) is None and standstill([[1]]) is None
    assert standstill([[4], [], []]) == 2
    # Steps 0 to 3 of four sentences.
    traces = [[[1], [1], [1], []], [[1], [2], [2], []], [[1], [2], [3], []], [[1], [2], [4], []]]
    assert stopped(traces) == [0.5, 0.25, 0.0]


def test_points_compare_with_the_start():
    figures = point(2, [-3.0, -5.0, -4.0], [-4.0, -4.0, -4.0])
    assert (figures["bound"], figures["gain"], figures["risen"], figures["fallen"]) == (-4.0, 0.0, 1 / 3, 1 / 3)
    assert figures["bound_error"] == pytest.approx((1 / 3) ** 0.5) == figures["gain_error"]
