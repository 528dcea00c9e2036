"""Settings that came after runs were made, and are not written while they have their default."""

from __future__ import annotations

from workflow_src import registry
from workflow_src.spec import Grown

# What runs were made with that do not name the setting. Rules of such runs are handed nothing of it, so that a changed
# default would change what they compute, and nothing would run again. Write another value into configurations instead.
DEFAULTS = {
    "LanmtConfig": {"length_reads": "latents"},
    "NatConfig": {
        "head_scale": 0.1, "latent": "none", "latent_dim": 0, "max_length_difference": 50, "posterior_layers": 3,
    },
    "NatObjectiveConfig": {
        "budget_end": 0.0, "budget_hold": 0.1, "budget_until": 0.4, "glance": "none", "glance_count": "poisson",
        "glance_end": 0.3, "glance_share": 0.5, "kl_budget": 1.0, "label_smoothing": 0.0, "length_weight": 1.0,
        "skip_penalty": 1.0,
    },
    "NgramConfig": {"max_sentences": None},
    "NormalisationConfig": {"references": "given"},
    "ReportConfig": {"expected_reference_lengths": {}, "grids": ()},
    "TrainingConfig": {"patience": None},
}  # fmt: skip


def test_defaults_of_settings_that_came_later_never_change():
    registry.families()
    sections = [section for section in Grown.__subclasses__() if section.__module__.startswith("workflow_src.")]
    found = {one.__name__: {name: one.model_fields[name].default for name in one.later} for one in sections}
    assert found == DEFAULTS
