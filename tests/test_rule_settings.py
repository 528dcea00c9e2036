"""The settings that `smoke` hands to its rules: a diff of the snapshot shows what a change of code does to them.

A changed setting makes finished runs rerun that rule. After an intended change, write the snapshot again:
`python tests/test_rule_settings.py`
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from workflow_src import registry
from workflow_src.config.experiment import DistillationConfig
from workflow_src.config.files import experiment_names
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan
from workflow_src.jobs import recorded
from workflow_src.spec import parse

SNAPSHOT = Path(__file__).parent / "smoke_rule_settings.json"


def rule_settings(plan: Plan) -> dict[str, str]:
    """The settings of every job, as JSON text, by rule and name."""
    names = "download normalise subwords encode analysis speed quality report"
    by_rule = {name: getattr(plan, f"settings_{name}")() for name in names.split()}
    by_rule |= {"significance": plan.settings_significance("test")}
    by_rule |= {f"training {name}": plan.settings_training(name) for name in plan.loaded.systems}
    by_rule |= {
        f"finish {export or 'bundle'} {system}": plan.settings_finish(system, seed, export)
        for system, seed, export in plan.finished
    }
    by_rule |= {f"distillation {name}": plan.settings_distillation(name) for name in plan.teachers}
    by_rule |= {name: plan.settings_of_analysis(name) for name, analysis in plan.analyses.items() if analysis.enabled}
    for decode in plan.loaded.decodes:
        row = f"{decode.system}/{decode.name}"
        by_rule[f"decode {row}"] = plan.settings_decode(decode)
        by_rule |= {f"choose {row}": plan.settings_choose(decode)} if decode.tune else {}
    return by_rule


def snapshot() -> dict[str, object]:
    """Those that Snakemake compares: without defaults, whose changes tests/test_defaults.py shows."""
    by_rule = rule_settings(Plan(load_experiment("smoke")).compared())
    return {name: json.loads(settings) for name, settings in sorted(by_rule.items())}


def test_settings_of_smoke_are_those_of_the_snapshot():
    assert snapshot() == json.loads(SNAPSHOT.read_text()), "run tests/test_rule_settings.py if the change is intended"


# Stages of rules of another name.
STAGES = {
    "analysis": "analyse",
    "choose": "choose_settings",
    "distillation": "distill",
    "finish": "finish_bundle",
    "quality": "score_quality",
    "significance": "compare_rows",
    "speed": "measure_speed",
    "subwords": "learn_subwords",
    "training": "train",
    **dict.fromkeys(registry.analyses(), "measure_analysis"),
}


@pytest.mark.parametrize("experiment", experiment_names())
def test_stages_record_the_settings_of_every_rule_as_they_were_written(experiment):
    """Each is checked by the class of its stage, which must lose nothing and make no 1.0 of a 1."""
    for name, settings in rule_settings(Plan(load_experiment(experiment))).items():
        rule = name.split()[0]
        stage = importlib.import_module(f"workflow_src.stages.{STAGES.get(rule, rule)}")
        kind = stage.Inputs.model_fields["settings"].annotation
        as_recorded = json.loads(settings)
        if kind != dict[str, Any]:
            as_recorded = recorded(parse(kind, as_recorded, "settings"))
        assert json.dumps(as_recorded, sort_keys=True, ensure_ascii=False) == settings, name


@pytest.mark.parametrize("experiment", experiment_names())
def test_the_settings_of_a_teacher_are_those_that_a_configuration_may_have(experiment):
    plan = Plan(load_experiment(experiment))
    for teacher in plan.teachers:
        section = parse(DistillationConfig, json.loads(plan.settings_distillation(teacher)))
        assert section.search_settings() == plan.distillation(teacher).search_settings()


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(snapshot(), indent=1, ensure_ascii=False) + "\n")
