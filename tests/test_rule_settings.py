"""What every shipped experiment hands to its rules, frozen: a change here makes finished runs of users rerun.

After a change that is meant, write the file anew and say in the changelog what reruns:
`python tests/test_rule_settings.py`
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from workflow_src.config.load import experiment_names, load_experiment
from workflow_src.config.plan import Plan

FROZEN = Path(__file__).parent / "rule_settings.json"


def rule_settings(experiment: str) -> dict[str, str]:
    """The settings of every job by rule and name."""
    plan = Plan(load_experiment(experiment))
    found = {
        name: getattr(plan, f"settings_{name}")()
        for name in (
            "download", "normalise", "subwords", "encode", "significance", "analysis", "speed", "quality", "report"
        )
    }  # fmt: skip
    found |= {f"training {name}": plan.settings_training(name) for name in plan.loaded.systems}
    found |= {f"bundle {name}": plan.settings_bundle(name) for name in plan.exported}
    found |= {f"distillation {name}": plan.settings_distillation(name) for name in plan.teachers}
    # Those that are off by default hand nothing to anybody who did not ask for them.
    by_default = {name for name in plan.analyses if type(getattr(plan.config.analyses, name))().enabled}
    found |= {name: one.settings for name, one in plan.analyses.items() if one.enabled or name in by_default}
    for decode in plan.loaded.decodes:
        of = f"{decode.system}/{decode.name}"
        found[f"decode {of}"] = plan.settings_decode(decode)
        found |= {f"choose {of}": plan.settings_choose(decode)} if decode.tune else {}
    return found


def digests(experiment: str) -> dict[str, str]:
    return {
        name: hashlib.sha256(settings.encode()).hexdigest()[:16]
        for name, settings in sorted(rule_settings(experiment).items())
    }


@pytest.mark.parametrize("experiment", experiment_names())
def test_rules_of_shipped_experiments_get_what_they_got(experiment):
    frozen = json.loads(FROZEN.read_text())
    assert experiment in frozen, f"run {Path(__file__).name} to freeze the new experiment"
    now, before = digests(experiment), frozen[experiment]
    changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    assert not changed, f"other settings for {', '.join(changed)}: now {rule_settings(experiment).get(changed[0])}"


# What belongs to an experiment; everything else belongs to its recipe, whose experiments share it.
OWN = (
    "analysis", "speed", "report", "significance",
    "latent_space", "lengths", "marginal", "samples", "tokens", "components", "reordering", "convergence", "energies",
    "latent_paths",
)  # fmt: skip


def test_experiments_that_share_a_recipe_do_not_undo_each_other():
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for experiment in experiment_names():
        recipe = load_experiment(experiment).config.recipe.name
        for name, digest in json.loads(FROZEN.read_text())[experiment].items():
            if name not in OWN:
                other, before = found.setdefault((recipe, name), (experiment, digest))
                assert digest == before, f"{experiment} and {other} make {name} of {recipe} differently; rename one"


if __name__ == "__main__":
    FROZEN.write_text(json.dumps({name: digests(name) for name in experiment_names()}, indent=1) + "\n")
