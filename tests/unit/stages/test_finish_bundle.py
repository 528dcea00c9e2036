"""Finished bundles: the search that they take by default is the best on dev of what they can repeat."""

from __future__ import annotations

import json
import os

import pytest

from workflow_src import cli
from workflow_src.config import Plan, load
from workflow_src.config.files import CONFIG_FOLDER, merge, read_yaml
from workflow_src.records.atomic import read_json, write_json
from workflow_src.serving.translator import Translator

SMOKE = read_yaml(CONFIG_FOLDER / "experiments" / "smoke.yaml")


def planned(*decodes):
    language_model = {"family": "ngram", "preset": "3-gram"}
    return Plan(load(merge(SMOKE, {"decodes": list(decodes), "systems": {"other": language_model}})))


def names(plan, system, export=None):
    return [decode.name for decode in plan.measured_on_dev(system, export)]


BEAM = {"system": "ctc", "search": "ctc-beam", "beam": 3}
WEIGHTS = {"tune": {"word_bonus": [0.5, 1.0]}}


def test_rows_count_that_the_bundle_can_repeat_and_that_dev_measured():
    plan = planned(
        {"system": "ctc", "search": "ctc-greedy", "splits": ["dev", "test"], "name": "both"},
        {"system": "ctc", "search": "ctc-greedy", "engine": "onnxruntime", "splits": ["dev"], "name": "faster"},
        # Only on test.
        BEAM | {"name": "tested"},
        BEAM | {"name": "alone", **WEIGHTS},
        BEAM | {"name": "carried", "language_model": "lm", **WEIGHTS},
        # The bundle has neither this language model nor a teacher.
        BEAM | {"name": "weighed", "language_model": "other", **WEIGHTS},
        BEAM | {"name": "ranked", "rescorer": "teacher", **WEIGHTS},
        {"system": "teacher", "search": "beam", "beam": 2, "splits": ["dev", "test"]},
        {"system": "teacher", "search": "beam", "beam": 3, "engine": "ctranslate2", "splits": ["dev"], "name": "other"},
    )
    assert names(plan, "ctc") == ["both", "faster", "alone", "carried"]
    # Folders of another engine repeat what that engine computes.
    assert names(plan, "teacher") == ["beam-2"] and names(plan, "teacher", "ctranslate2") == ["other"]
    assert names(plan, "lm") == []


@pytest.fixture
def finish(tiny_bundles, run_stage, tmp_path):
    """Finishes the bundle of a family. `rows` are (name, settings, BLEU on dev[, chosen]); returns the folder."""

    def make(family, *rows, folder="finished", bundle=None, **settings):
        entries = []
        for name, fields, bleu, *chosen in rows:
            entry = {"decode": {"name": name} | fields, "removal": "none"}
            if chosen:
                entry["chosen"] = str(tmp_path / f"{name}-chosen.json")
                points = [{"settings": {}, "bleu": bleu - 1}, {"settings": chosen[0], "bleu": bleu}]
                content = {"chosen": chosen[0], "curve": points}
                (tmp_path / f"{name}-chosen.json").write_text(json.dumps(content))
            else:
                entry["quality"] = str(tmp_path / f"{name}.json")
                (tmp_path / f"{name}.json").write_text(json.dumps({"kept": {"bleu": bleu}}))
            entries.append(entry)
        content = {"experiment": "e", "rows": entries, "search_defaults": {}, "remove_repetitions": None}
        words = ["--settings", json.dumps(content | settings), "--bundle", str(bundle or tiny_bundles[family])]
        run_stage("finish_bundle", [*words, "--output-folder", str(tmp_path / folder)])
        return tmp_path / folder

    return make


GREEDY, BEAM_2 = {"search": "greedy"}, {"search": "beam", "beam": 2}
LINES = ["der Hund ruht heute", "", "ein Baum"]


def opened(folder):
    return Translator.load(folder, device="cpu", threads=1, engine="eager")


def test_the_best_row_on_dev_is_the_default(finish, tiny_bundles):
    penalised = BEAM_2 | {"length_penalty": 0.5}
    folder = finish("transformer", ("g", GREEDY, 20.0), ("b", BEAM_2, 21.0), ("p", penalised, 22.5, {"beam": 3}))
    description = read_json(folder / "bundle.json")
    assert description["defaults"]["search"] == "beam"
    # The default of a length penalty is not written.
    assert description["search_defaults"] == {"beam": {"beam": 3, "length_penalty": 0.5}}
    row = {"row": "p", "engine": "eager", "dev_bleu": 22.5}
    assert description["default_from"] == {"experiment": "e", "rows": 3} | row
    plain = opened(tiny_bundles["transformer"])
    assert opened(folder).request().settings == plain.request("beam", beam=3, length_penalty=0.5).settings
    assert opened(folder).translate(LINES) == plain.translate(LINES, search="beam", beam=3, length_penalty=0.5)
    # Settings of the caller win.
    assert opened(folder).request("beam", beam=7).settings == plain.request("beam", beam=7, length_penalty=0.5).settings
    assert opened(folder).request("greedy").settings == plain.request("greedy").settings


def test_of_equal_rows_the_first_is_taken_and_every_search_has_its_own_best(finish):
    rows = (("a", GREEDY, 30.0), ("b", BEAM_2, 30.0), ("c", BEAM_2 | {"beam": 5}, 29.0))
    description = read_json(finish("transformer", *rows) / "bundle.json")
    assert description["default_from"]["row"] == "a" and description["defaults"]["search"] == "greedy"
    assert description["search_defaults"] == {"beam": {"beam": 2}}


def test_without_a_row_on_dev_the_first_search_of_the_family_stays_and_the_bundle_says_so(finish, tiny_bundles, capsys):
    folder, plain = finish("transformer"), opened(tiny_bundles["transformer"])
    assert read_json(folder / "bundle.json")["default_from"] == {"experiment": "e", "rows": 0}
    assert opened(folder).request().settings == plain.request().settings
    assert "because e measures none of them on dev" in shown(capsys, folder)


def shown(capsys, folder) -> str:
    """The help of `continuum translate` for a bundle."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["translate", "--bundle", str(folder), "--help"])
    assert exit_info.value.code == 0
    return " ".join(capsys.readouterr().out.split()).replace("- ", "-")


def test_the_help_says_what_is_the_default_and_where_it_comes_from(finish, capsys):
    folder = finish("transformer", ("g", GREEDY, 20.0), ("b", BEAM_2 | {"beam": 7}, 21.25))
    help_text = shown(capsys, folder)
    assert "default: beam, " in help_text and "21.25" in help_text and "default 7" in help_text


def test_what_an_experiment_says_of_a_search_comes_before_what_dev_chose(finish):
    defaults = {"beam": {"beam": 4}}
    folder = finish("transformer", ("b", BEAM_2 | {"length_penalty": 0.5}, 21.0), search_defaults=defaults)
    description = read_json(folder / "bundle.json")
    assert description["search_defaults"] == defaults and description["default_from"]["settings"] == "search_defaults"


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"quality": {"source": "de"}}, {"path": "quality", "mentions": ("kept",)}),
        ({"quality": {"kept": {"chrf": 50.0}}}, {"path": "quality", "mentions": ("kept.bleu",)}),
        ({"quality": [1]}, {"path": "quality"}),
        ({"chosen": {"source": "de"}}, {"path": "chosen", "mentions": ("chosen",)}),
        ({"chosen": {"chosen": {"beam": 3}, "curve": [{"bleu": 1.0}]}}, {"path": "chosen"}),
        ({"chosen": {"chosen": {"beam": 3}, "curve": []}}, {"path": "chosen"}),
    ],
)
def test_rows_that_cannot_be_used_are_refused(row, fields, tiny_bundles, refused, tmp_path):
    entry = {"decode": {"name": "b"} | BEAM_2, "removal": "none"}
    for name, content in row.items():
        write_json(tmp_path / name, content)
        entry[name] = str(tmp_path / name)
    document = {"experiment": "e", "rows": [entry], "search_defaults": {}, "remove_repetitions": None}
    words = ["--settings", json.dumps(document), "--bundle", str(tiny_bundles["transformer"])]
    fields = fields | {"path": str(tmp_path / fields["path"])}
    refused("finish_bundle", [*words, "--output-folder", str(tmp_path / "finished")], **fields)
    assert not (tmp_path / "finished").exists()


def test_repetitions_are_removed_as_the_experiment_removes_them(finish, tiny_bundles):
    plain, keeping = opened(tiny_bundles["lvm"]), opened(finish("lvm", remove_repetitions="none"))
    kept, removed = (plain.translate(LINES, remove_repetitions=removal) for removal in ("none", "subwords"))
    assert plain.translate(LINES) == removed != kept
    assert keeping.translate(LINES) == kept and keeping.translate(LINES, remove_repetitions="subwords") == removed


def test_a_setting_that_dev_chose_can_be_taken_back(finish, tiny_bundles):
    stopping = {"search": "score", "steps": 3, "step_size": 1.0, "stop_threshold": 0.1}
    folder, plain = finish("score", ("s", stopping, 20.0)), opened(tiny_bundles["score"])
    assert opened(folder).request().settings.stop_threshold == 0.1
    assert opened(folder).request(stop_threshold="none").settings == plain.request("score", steps=3).settings


def test_another_export_does_not_change_a_finished_bundle(finish, tiny, systems, export_words, run_stage, tmp_path):
    """They share files on the disk; another experiment's run may export the system anew."""
    exported = tmp_path / "results/r/systems/one/seed-1/bundle"
    run_stage("export_bundle", export_words(systems["transformer"], None, exported))
    folder = finish("transformer", bundle=exported, folder="results/e/bundles/one/seed-1")
    weights = folder / "transformer.safetensors"
    assert os.path.samefile(weights, exported / "transformer.safetensors")
    before, translations = weights.read_bytes(), opened(folder).translate(LINES)
    other = tmp_path / "other.safetensors"
    other.write_bytes(systems["transformer"].read_bytes())
    (tmp_path / "config.json").write_text((systems["transformer"].parent / "config.json").read_text())
    run_stage("export_bundle", export_words(other, None, exported))
    assert not os.path.samefile(weights, exported / "transformer.safetensors")
    assert weights.read_bytes() == before and opened(folder).translate(LINES) == translations


def test_files_are_copied_where_the_disk_has_no_hard_links(finish, tiny_bundles, monkeypatch):
    def refused(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    folder = finish("transformer", ("b", BEAM_2, 21.0))
    name = "transformer.safetensors"
    assert not os.path.samefile(folder / name, tiny_bundles["transformer"] / name)
    assert opened(folder).translate(LINES)


def test_a_finished_bundle_vouches_for_its_files_and_holds_no_others(finish):
    finish("lvm", folder="results/e/bundles/one/seed-1")
    folder = finish("transformer", ("b", BEAM_2, 21.0), folder="results/e/bundles/one/seed-1")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"bundle.json", *read_json(folder / "bundle.json")["provenance"]["files"]}


OWN_FILES = ("notes.json", "thesis/chapter.txt", "model.safetensors.bak", "subwords/mine.txt")


@pytest.mark.parametrize("stage", ["finish_bundle", "export_engine"])
def test_files_of_the_user_in_the_output_folder_stay(stage, finish, tiny_bundles, run_stage, tmp_path):
    """A folder that was named by mistake is not emptied; an older bundle in it is replaced."""
    folder = tmp_path / "finished"
    for name in OWN_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    for family in ("lvm", "transformer"):
        if stage == "finish_bundle":
            finish(family)
        else:
            source = ["--engine", "ctranslate2", "--settings", "{}", "--bundle", str(tiny_bundles["transformer"])]
            run_stage(stage, [*source, "--output-folder", str(folder)])
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    written = read_json(folder / "bundle.json")["provenance"]["files"]
    assert files == {"bundle.json", *written, *OWN_FILES}
    assert all((folder / name).read_text() == name for name in OWN_FILES)
