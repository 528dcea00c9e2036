"""Objectives that are built from settings."""

from __future__ import annotations

import pytest

from workflow_src.errors import ConfigError
from workflow_src.families.build import build_objective


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
