"""How many shards a text is joined from: those on disk, as long as they need not be made anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from workflow_src.config import Plan, load_experiment
from workflow_src.records.cuts import Cuts

BEAM = {"system": "teacher", "search": "beam", "beam": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(shards: int = 5, decode: dict | None = None, teacher: dict | None = None, **distillation) -> Plan:
    """The experiment smoke with one decode, and `shards` of it and of the teacher's distillation."""
    return Plan(load_experiment(
        "smoke", decodes=[BEAM | {"shards": shards, "name": "b"} | (decode or {})], systems={"teacher": teacher or {}},
        distillation={"teacher": {"shards": shards, **distillation}},
    ))  # fmt: skip


def write(path: str, when: int, settings: str | None = None, record: str | None = None, **made) -> None:
    """A file, and the record beside it where settings are given, last changed at `when`."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    files = {Path(path): "x"}
    if settings is not None:
        beside = Path(path).with_name(record) if record else Path(path).with_suffix(".json")
        files[beside] = json.dumps({"provenance": {"settings": json.loads(settings), **made}})
    for file, content in files.items():
        file.write_text(content)
        os.utime(file, (when, when))


def distil(plan: Plan, count: int, when: int = 20) -> list[str]:
    """A teacher, trained at 10, and a whole set of its shards."""
    write(plan.weights("teacher", 1), 10, plan.settings_training("teacher"), "config.json")
    paths = [plan.distilled_shard("teacher", shard, count) for shard in range(count)]
    for path in paths:
        write(path, when, plan.settings_distillation("teacher"))
    return paths


def distilled(plan: Plan) -> int:
    return len(Cuts(plan).distilled("teacher"))


def translate(plan: Plan, shards: int, when: int = 30) -> None:
    """Translations of dev by a teacher, trained at 10."""
    write(plan.weights("teacher", 1), 10, plan.settings_training("teacher"), "config.json")
    decode = plan.decode("teacher", "b")
    write(plan.translation(decode, 1, "dev"), when, plan.settings_decode(decode), shards=shards)


def cut(plan: Plan, count: int, when: int) -> None:
    for shard in range(count):
        write(plan.translation_shard(plan.decode("teacher", "b"), 1, "dev", shard, count), when)


def translated(plan: Plan) -> int:
    """The number of shards; 1 where there are none to join."""
    return max(1, len(Cuts(plan).translated(plan.decode("teacher", "b"), 1, "dev")))


def test_shards_on_disk_are_used_however_many_they_are():
    assert distilled(planned(5)) == 5
    paths = distil(planned(1), 1)
    assert Cuts(planned(5)).distilled("teacher") == paths
    distil(planned(3), 3)
    assert distilled(planned(5)) == 1 and distilled(planned(3)) == 3
    os.unlink(paths[0])
    assert distilled(planned(5)) == 3


def test_shards_whose_settings_changed_are_cut_as_configured():
    distil(planned(1), 1)
    assert distilled(planned(5, beam=7)) == 5
    assert distilled(planned(5, teacher={"training": {"max_steps": 7}})) == 5
    # Made of files that have changed since, such as weights that were trained anew already.
    write(planned(5).weights("teacher", 1), 25)
    assert distilled(planned(5)) == 5
    # A new set with the settings that are wanted now takes the old one's place, whatever it has.
    distil(planned(2, beam=7), 2, when=30)
    assert distilled(planned(5, beam=7)) == 2


def test_a_set_without_records_is_kept_for_the_join_to_refuse():
    for path in distil(planned(2), 2):
        Path(path).with_suffix(".json").write_text("broken")
    assert distilled(planned(5)) == 2


def test_translations_keep_their_shards():
    assert translated(planned(5)) == 5 and translated(planned(1)) == 1
    translate(planned(1), shards=1)
    assert translated(planned(5)) == 1
    translate(planned(3), shards=3)
    assert translated(planned(5)) == translated(planned(1)) == 3


@pytest.mark.parametrize("change", [{"decode": {"beam": 7}}, {"teacher": {"training": {"max_steps": 7}}}])
def test_translations_that_are_made_anew_are_cut_as_configured(change):
    translate(planned(1), shards=1)
    assert translated(planned(5, **change)) == 5 and translated(planned(1, **change)) == 1


def test_a_job_that_asks_again_joins_the_shards_that_were_made_for_it():
    """On a cluster the old translations are still there, while their system is the new one."""
    translate(planned(1), shards=1)
    again = planned(5, teacher={"training": {"max_steps": 7}})
    write(again.weights("teacher", 1), 40, again.settings_training("teacher"), "config.json")
    cut(again, 5, when=20)
    assert translated(again) == 1
    cut(again, 5, when=50)
    assert translated(again) == 5


def test_what_a_system_is_built_on_counts():
    decode = {"system": "score", "search": "score", "steps": 1, "name": "b", "shards": 4}
    plan = Plan(load_experiment("smoke", decodes=[decode]))
    for name in ("teacher", "lvm", "score"):
        write(plan.weights(name, 1), 10, plan.settings_training(name), "config.json")
    made = plan.decode("score", "b")
    write(plan.translation(made, 1, "dev"), 30, plan.settings_decode(made), shards=1)
    assert Cuts(plan).translated(made, 1, "dev") == []
    for name in ("teacher", "lvm", "score"):
        other = Plan(load_experiment("smoke", decodes=[decode], systems={name: {"training": {"max_steps": 7}}}))
        assert len(Cuts(other).translated(made, 1, "dev")) == 4


@pytest.mark.parametrize(
    ("role", "changes"),
    [
        ("language_model", {"lm": {"preset": "4-gram"}}),
        # What the model is estimated from.
        ("language_model", {"teacher": {"training": {"max_steps": 7}}}),
        ("rescorer", {"judge": {"training": {"max_steps": 7}}}),
    ],
)
def test_systems_that_a_search_works_with_count(role, changes):
    judge = {"family": "transformer", "preset": "miniature", "training": {"max_steps": 5}}
    systems = {"judge": judge, "ctc": {"data": "raw", "init_from": None}}
    names = {"language_model": "lm", "rescorer": "judge"}
    decode = {"system": "ctc", "search": "ctc-beam", "beam": 2, role: names[role], "name": "b", "shards": 4}
    plan = Plan(load_experiment("smoke", decodes=[decode], systems=systems))
    for name in ("teacher", "ctc", "lm", "judge"):
        write(plan.weights(name, 1), 10, plan.settings_training(name), "config.json")
    made = plan.decode("ctc", "b")
    write(plan.translation(made, 1, "dev"), 30, plan.settings_decode(made), shards=1)
    assert Cuts(plan).translated(made, 1, "dev") == []
    changed = systems | {name: systems.get(name, {}) | change for name, change in changes.items()}
    other = Plan(load_experiment("smoke", decodes=[decode], systems=changed))
    assert len(Cuts(other).translated(made, 1, "dev")) == 4
