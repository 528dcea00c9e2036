"""Defaults of settings that change results: one that changes raises the number of its class.

After a change of defaults, write the file anew: `python tests/test_defaults.py`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import Field

from workflow_src import registry
from workflow_src.config.datasets import DatasetFiles, GroupSplit, NthSplit
from workflow_src.config.experiment import ReportConfig, SpeedConfig
from workflow_src.config.load import load_experiment
from workflow_src.config.plan import Plan
from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.config.training import AugmentConfig, TrainingConfig
from workflow_src.data.toy import GENERATOR
from workflow_src.spec import Frozen, compared, defaults

FILE = Path(__file__).parent / "defaults.json"
SCHEMA = [
    *(AugmentConfig, DatasetFiles, NormalisationConfig, ReportConfig),
    *(SpeedConfig, GroupSplit, NthSplit, SubwordsConfig, TrainingConfig),
]


def sections() -> dict[str, type[Frozen]]:
    """Classes of settings that rules compare, and of the sections in them, by module and name."""
    waiting: list[Any] = [*SCHEMA]
    for family in registry.families().values():
        waiting += [family.model, family.objective]
    members = registry.members()
    for group in (members.searches, members.metrics, members.analyses, members.filters, members.generators):
        waiting += [member.settings for member in group.values()]
    kinds: dict[str, type[Frozen]] = {}
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Frozen):
            name = f"{kind.__module__}.{kind.__name__}"
            if name not in kinds:
                kinds[name] = kind
                waiting += [field.annotation for field in kind.model_fields.values()]
    return dict(sorted(kinds.items()))


def snapshot() -> dict[str, Any]:
    return {name: {"number": kind.defaults_number, **defaults(kind)} for name, kind in sections().items()}


def not_raised(earlier: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Classes with another default of a setting that they had earlier, and with no larger number."""
    return [
        name
        for name, section in now.items()
        if any(section[field] != value for field, value in earlier.get(name, {}).items() if field in section)
        and section["number"] <= earlier[name]["number"]
    ]


def test_a_changed_default_raises_the_number_of_its_class():
    names = not_raised(json.loads(FILE.read_text()), snapshot())
    assert not names, f"raise defaults_number of {', '.join(names)}: finished runs have other defaults"


def test_the_file_of_defaults_is_up_to_date():
    assert snapshot() == json.loads(FILE.read_text()), "run `python tests/test_defaults.py`"


@pytest.mark.parametrize(
    ("now", "names"),
    [
        ({"A": {"number": 1, "rate": 0.1}}, []),
        ({"A": {"number": 1, "rate": 0.2}}, ["A"]),
        ({"A": {"number": 2, "rate": 0.2}}, []),
        # New settings and new classes change no finished run.
        ({"A": {"number": 1, "rate": 0.1, "more": 3}, "B": {"number": 1, "rate": 0.2}}, []),
    ],
)
def test_what_must_be_raised(now, names):
    assert not_raised({"A": {"number": 1, "rate": 0.1}}, now) == names


class Inner(Frozen):
    depth: int = 2


class Outer(Frozen):
    rate: float = 0.5
    inner: Inner = Inner()


class Several(Frozen):
    entries: tuple[Inner, ...] = ()
    # Another rule reads it.
    elsewhere: Inner = Field(Inner(), exclude=True)


def test_numbers_of_all_sections_are_compared_and_first_ones_left_out(monkeypatch):
    assert compared(Outer()) == {} and compared(Outer(rate=1.0)) == {"rate": 1.0}
    monkeypatch.setattr(Inner, "defaults_number", 3)
    # The default of a section is one too.
    assert compared(Outer()) == {"defaults": {"Inner": 3}}
    assert compared(Several(entries=(Inner(depth=1),))) == {"entries": [{"depth": 1}], "defaults": {"Inner": 3}}
    assert compared(Several()) == {}


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (TrainingConfig, {"training"}),
        (NormalisationConfig, {"normalise"}),
        (SubwordsConfig, {"subwords"}),
        (SpeedConfig, {"speed"}),
        (GENERATOR.settings, {"download"}),
        (AugmentConfig, set()),
        (ReportConfig, {"report"}),
    ],
)
def test_a_raised_number_changes_what_snakemake_compares_and_no_job(monkeypatch, kind, rules):
    plan = Plan(load_experiment("smoke"))

    def settings(plan):
        names = "download normalise subwords encode speed quality report".split()
        by_rule = {name: getattr(plan, f"settings_{name}")() for name in names}
        return by_rule | {"training": plan.settings_training("teacher")}

    before, jobs = settings(plan.compared()), settings(plan)
    monkeypatch.setattr(kind, "defaults_number", 2)
    after = settings(plan.compared())
    assert {name for name in before if before[name] != after[name]} == rules
    assert settings(plan) == jobs


def test_a_raised_number_of_fields_that_a_rule_does_not_read_changes_nothing(monkeypatch):
    plan = Plan(load_experiment("tatoeba")).compared()
    before = plan.settings_download(), plan.settings_normalise()
    monkeypatch.setattr(GroupSplit, "defaults_number", 2)
    assert plan.settings_download() == before[0] and plan.settings_normalise() != before[1]


def test_a_raised_number_of_a_generator_that_no_file_states_changes_the_download(monkeypatch):
    dataset = {"name": "made", "languages": ["de", "en"], "kind": "generated"}
    plan = Plan(load_experiment("smoke", recipe={"dataset": dataset}))
    before = plan.compared().settings_download()
    monkeypatch.setattr(GENERATOR.settings, "defaults_number", 2)
    assert plan.compared().settings_download() != before


if __name__ == "__main__":
    FILE.write_text(json.dumps(snapshot(), indent=1, ensure_ascii=False) + "\n")
