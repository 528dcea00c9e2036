"""What is built from descriptions: objectives of settings, names of networks in a bundle."""

from __future__ import annotations

import pytest

from workflow_src.config.base import ConfigError
from workflow_src.families.build import build_objective
from workflow_src.serving.bundle import names


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sharpness": 1.0}, 'unknown setting "sharpness" in transformer.objective'),
        ({"label_smoothing": "much"}, "transformer.objective.label_smoothing"),
    ],
)
def test_settings_that_are_not_the_objectives_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ConfigError) as refused:
        build_objective("transformer", settings)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_networks_of_one_family_have_names_of_their_own_in_a_bundle():
    assert names({"base": "lvm", "model": "score"}) == {"base": "lvm", "model": "score"}
    assert names({"base": "lvm", "model": "lvm"}) == {"base": "base-lvm", "model": "lvm"}
    both = names({"model": "cmlm", "energy": "transformer", "critic": "transformer"})
    assert both == {"model": "cmlm", "energy": "energy-transformer", "critic": "critic-transformer"}
