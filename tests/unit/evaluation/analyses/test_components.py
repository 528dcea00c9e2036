"""Principal components: against a singular value decomposition, by hand, and latents against single sentences."""

import miniatures
import numpy as np
import pytest
import torch

from workflow_src.evaluation.analyses.components import measure as components
from workflow_src.evaluation.analyses.networks import posterior_latents

SOURCES = [[4, 7, 5], [6, 8, 9, 10, 11, 4], [5], [12, 3, 3, 4]]
TARGETS = [[4, 5], [3, 9, 8, 4, 4, 6, 5], [7, 7, 3], [6]]
CPU = torch.device("cpu")


def test_shares_are_squared_singular_values_of_the_centred_points():
    generator = np.random.default_rng(1)
    points = generator.normal(size=(50, 4)) @ generator.normal(size=(4, 4)) + [100, 0, -3, 0.5]
    singular = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    shares = components.component_shares(points)
    assert shares == pytest.approx(singular**2 / (singular**2).sum(), abs=1e-12)
    # Where the points are moved to, how they are turned, and their scale change nothing.
    turned, _ = np.linalg.qr(generator.normal(size=(4, 4)))
    assert components.component_shares(3 * points @ turned - 7) == pytest.approx(shares, abs=1e-9)


def test_points_on_a_line_have_one_component_and_equal_ones_none():
    line = np.outer(np.arange(9.0), [1.0, -2.0, 0.5]) + 4
    assert components.component_shares(line) == pytest.approx([1, 0, 0])
    assert components.component_shares(np.full((5, 3), 2.0)).tolist() == [0, 0, 0]


def test_the_fewest_components_that_hold_a_share():
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    counted = {share: components.enough(shares, share) for share in (0.5, 0.51, 0.8, 0.95, 0.96)}
    assert counted == {0.5: 1, 0.51: 2, 0.8: 2, 0.95: 3, 0.96: 4}
    assert components.enough(np.zeros(4), 0.95) == 0


def test_a_summary_by_hand():
    # Variances 4 and 1 along the axes, in two sentences.
    means = np.array([[2.0, 0], [-2, 0], [2, 0], [-2, 0], [0, 2**0.5], [0, -(2**0.5)], [0, 2**0.5], [0, -(2**0.5)]])
    variances = np.repeat([[1.0, 2.0]], 8, axis=0)
    summary = components.summary([(means[:3], variances[:3]), (means[3:], variances[3:])], 0.7)
    assert summary["shares"] == pytest.approx([2 / 3, 1 / 3])
    assert summary["together"] == pytest.approx([2 / 3, 1])
    assert (summary["latents"], summary["width"], summary["components"]) == (8, 2, 2)
    assert summary["participation"] == pytest.approx(9 / 5)
    assert (summary["variance"], summary["noise"]) == (pytest.approx(3.0), 3.0)
    nothing = components.summary([(np.ones((4, 2)), np.ones((4, 2)))], 0.95)
    assert (nothing["components"], nothing["participation"], nothing["variance"]) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["target", "target with ends", "source"])
def test_latents_are_those_of_every_pair_by_itself(kind):
    model = {
        "target": lambda: miniatures.lvm(),
        "target with ends": lambda: miniatures.lvm(end_symbol=True),
        "source": lambda: miniatures.nat(latent="vae", latent_dim=3, posterior_layers=1),
    }[kind]()
    latents = posterior_latents(model, SOURCES, TARGETS, 64, CPU)
    for source, target, (mean, variance) in zip(SOURCES, TARGETS, latents, strict=True):
        x, y = torch.tensor([[*source, 2]]), torch.tensor([target])
        if kind == "source":
            memory = model.encode(x)
            expected = model.posterior(memory, y, memory.mask)
            assert len(mean) == len(source) + 1
        else:
            y = torch.tensor([[*target, 2]]) if kind == "target with ends" else y
            expected = model.posterior(model.encode(x), y, torch.ones_like(y, dtype=torch.bool))
            assert len(mean) == y.size(1)
        assert mean == pytest.approx(expected[0][0].detach().numpy(), abs=1e-10)
        assert variance == pytest.approx(expected[1][0].detach().numpy() ** 2, abs=1e-10)
    by_two = posterior_latents(model, SOURCES, TARGETS, 2, CPU)
    for one, other in zip(latents, by_two, strict=True):
        assert one[0] == pytest.approx(other[0], abs=1e-10)


def test_long_targets_are_cut_to_the_positions_there_are():
    long = [[4] * 200]
    for model, positions in (
        (miniatures.lvm(), 64),
        (miniatures.lvm(end_symbol=True), 64),
        (miniatures.nat(latent="vae", latent_dim=3, posterior_layers=1), 4),
    ):
        ((mean, _),) = posterior_latents(model, [[4, 7, 5]], long, 4, CPU)
        assert len(mean) == positions
