"""Objectives that are built from settings."""

from __future__ import annotations

import pytest
from miniatures import context, pairs, transformer

from workflow_src.errors import ConfigError
from workflow_src.families.build import build_objective
from workflow_src.losses.cross_entropy import cross_entropy
from workflow_src.losses.settings import CrossEntropyConfig


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sharpness": 1.0}, "transformer.objective.sharpness: "),
        ({"label_smoothing": "much"}, "transformer.objective.label_smoothing"),
    ],
)
def test_settings_that_are_not_the_objectives_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ConfigError) as refused:
        build_objective("transformer", settings)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_an_objective_is_the_loss_of_the_family_with_its_settings():
    model, batch = transformer(), pairs([3, 5], [4, 2])
    losses = {
        smoothing: float(
            build_objective("transformer", {"label_smoothing": smoothing})(model, batch, context()).loss.detach()
        )
        for smoothing in (0.0, 0.3)
    }
    for smoothing, loss in losses.items():
        config = CrossEntropyConfig(label_smoothing=smoothing)
        assert loss == float(cross_entropy(model, batch, context(), config).loss.detach())
    assert losses[0.0] != losses[0.3]
