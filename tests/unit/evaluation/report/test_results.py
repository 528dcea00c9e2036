"""The schema of results.json: exactly its keys, checked when written and when read."""

import json

import pytest
import reports
from refusals import fields_of
from titles import BEAM, DELTA

from workflow_src.config.resolved import Decode
from workflow_src.errors import ArtifactError, InputError
from workflow_src.evaluation.analyses.energy import RowEnergies
from workflow_src.evaluation.quality.significance import FORMAT, PairedDifference
from workflow_src.evaluation.report import results
from workflow_src.records.checked import other_format
from workflow_src.registry import default_metrics

KEYS = [
    "system",
    "family",
    "autoregressive",
    "means_repetitions",
    "preset",
    "data",
    "seed",
    "name",
    "chosen",
    "search",
    "title",
    "settings",
    "series",
    "value",
    "engine",
    "mean_steps",
    "candidates",
    "repetitions_removed",
    "bleu",
    "bleu_ci",
    "bleu_tokenised",
    "bleu_intl_lowercase",
    "p_value",
    "control_difference",
    "control_p_value",
    "chrf",
    "validity",
    "energy_per_sentence",
    "energy_per_token",
    "latency_ms",
    "latency_std",
    "latency_rounds",
    "disturbed_rounds",
    "sentences_per_second",
    "speedup",
    "device",
    "threads",
    "batch",
]
ROW = {
    "system": "lvm",
    "family": "lvm",
    "autoregressive": False,
    "means_repetitions": False,
    "preset": "tiny",
    "data": "distilled",
    "seed": 1,
    "name": "delta-2",
    "chosen": None,
    "search": "delta",
    "title": "delta",
    "settings": {"steps": 2, "step_size": 1.0, "length_quantile": None},
    "series": "steps",
    "value": 2.0,
    "engine": "eager",
    "mean_steps": None,
    "candidates": None,
    "repetitions_removed": "subwords",
    "bleu": 30.0,
    "bleu_ci": [29.0, 31.0],
    "bleu_tokenised": 31.5,
    "bleu_intl_lowercase": 33.5,
    "p_value": None,
    "control_difference": None,
    "control_p_value": None,
    "chrf": 50.0,
    "validity": 0.5,
    "energy_per_sentence": 55.25,
    "energy_per_token": 2.5,
    "latency_ms": 3.0,
    "latency_std": 1.0,
    "latency_rounds": [2.9, 3.0, 3.2],
    "disturbed_rounds": [3],
    "sentences_per_second": 900.0,
    "speedup": 2.0,
    "device": "cpu",
    "threads": 1,
    "batch": 64,
}


def _content(**changes):
    return reports.results("e", "toy", [ROW | changes])


def test_keys_are_those_agreed_and_survive_writing(tmp_path):
    assert set(results.row_type(default_metrics()).model_fields) == set(KEYS)
    results.write_results(tmp_path / "results.json", _content())
    raw = json.loads((tmp_path / "results.json").read_text())
    assert set(raw) == {
        *("format", "experiment", "dataset", "source", "target", "split", "reference", "systems", "provenance", "rows")
    }
    assert raw["rows"] == [ROW]
    assert results.read_results(tmp_path / "results.json").rows[0].quality == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bleu": 101}, r"rows\[0\].bleu is 101; "),
        ({"bleu": float("nan")}, r"rows\[0\].bleu"),
        ({"bleu_ci": [31.0, 29.0]}, r"rows\[0\].bleu_ci is \[31.0, 29.0\]"),
        ({"data": "distilled-by-teacher"}, r"rows\[0\].data.*allowed: distilled, mixed, monolingual, none, raw"),
        ({"validity": 50}, r"rows\[0\].validity"),
        ({"latency_ms": 0}, r"rows\[0\].latency_ms"),
        ({"latency_rounds": [2.9, 0]}, r"rows\[0\].latency_rounds\[1\]"),
        ({"p": 0.1}, r"rows\[0\].p: "),
        ({"seed": None}, r"rows\[0\].seed"),
        ({"repetitions_removed": "letters"}, r"rows\[0\].repetitions_removed.*allowed: none, subwords, words"),
    ],
)
def test_wrong_rows_are_refused_by_name_and_nothing_is_written(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        results.write_results(tmp_path / "results.json", _content(**changes))
    assert list(tmp_path.iterdir()) == []


def test_a_metric_with_a_name_that_no_metric_can_have_is_refused():
    with pytest.raises(InputError, match=r"here cannot be used .*metrics.name is 'A b'"):
        results.validate(_content() | {"metrics": ["bleu", "A b"]}, "here")


def test_missing_keys_are_named(tmp_path):
    content = _content()
    del content["rows"][0]["speedup"]
    with pytest.raises(InputError, match=r"rows\[0\].speedup: missing"):
        results.validate(content, "here")


DECODES = {("teacher", "beam-4"): {"search": "beam", "beam": 4}, ("lvm", "delta-2"): reports.stepped("delta", 2)}
MANIFEST = reports.manifest(DECODES)
VARIANT = {"bleu": 30.0, "bleu_ci": [29.0, 31.0], "chrf": 50.0, "validity": None, "bleu_tokenised": 30.5}
VARIANT |= {"bleu_intl_lowercase": 32.5}
VARIANTS = {
    "kept": VARIANT,
    "without_repeated_words": VARIANT | {"bleu": 31.0},
    "without_repeated_subwords": VARIANT | {"bleu": 31.5},
}
QUALITIES = {row.quality: VARIANTS for row in MANIFEST.rows}


def test_autoregressive_rows_come_once_and_others_with_each_removal():
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test")
    assert [(r.system, r.repetitions_removed, r.bleu) for r in rows] == [
        ("teacher", "none", 30.0),
        ("lvm", "none", 30.0),
        ("lvm", "words", 31.0),
        ("lvm", "subwords", 31.5),
    ]
    assert {(r.bleu_tokenised, r.bleu_intl_lowercase) for r in rows} == {(30.5, 32.5)}
    # Settings are there whether a decode says them or not.
    assert (rows[0].settings["beam"], rows[0].settings["length_penalty"]) == (4, 1.0)
    assert "steps" not in rows[0].settings
    assert (rows[1].settings["steps"], rows[1].settings["length_quantile"]) == (2, None)
    assert [(r.autoregressive, r.title, r.series, r.value) for r in rows[:2]] == [
        (True, BEAM, "beam", 4),
        (False, DELTA, "steps", 2),
    ]
    assert rows[1].data == "distilled" and rows[0].data == "raw"
    assert all(r.latency_ms is None and r.device is None for r in rows)


def test_energies_stand_beside_the_variant_that_they_are_of_and_on_their_split():
    common = {"seed": 1, "error": 0.5, "sentences": 9, "unscored": 1}
    measured = [
        common | {"system": "teacher", "name": "beam-4", "repetitions_removed": "none"},
        common | {"system": "lvm", "name": "delta-2", "repetitions_removed": "words"},
    ]
    energy_rows = [row | {"per_sentence": 10.0 + i, "per_token": 1.0 + i} for i, row in enumerate(measured)]
    content = {"split": "test", "scorer": "teacher", "reference": energy_rows[0], "rows": energy_rows}
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test", energies=RowEnergies.model_validate(content))
    assert [(r.system, r.repetitions_removed, r.energy_per_sentence, r.energy_per_token) for r in rows] == [
        ("teacher", "none", 10.0, 1.0),
        ("lvm", "none", None, None),
        ("lvm", "words", 11.0, 2.0),
        ("lvm", "subwords", None, None),
    ]
    elsewhere = RowEnergies.model_validate(content | {"split": "dev"})
    rows_of_test = results.build_rows(MANIFEST, QUALITIES, None, "test", energies=elsewhere)
    assert all(row.energy_per_sentence is None for row in rows_of_test)


def test_a_figure_that_breaks_the_schema_is_named_with_its_file():
    spoilt = QUALITIES | {MANIFEST.rows[1].quality: VARIANTS | {"kept": VARIANT | {"bleu": 141.0}}}
    with pytest.raises(ArtifactError, match=r"here .*rows\[1\].bleu is 141.0; "):
        results.build_rows(MANIFEST, spoilt, None, "test", where="here")


def test_candidates_are_those_that_are_ranked():
    search = {"search": "latent-search", "lengths": 3, "samples": 2, "steps": 1, "refinement": "delta"}
    manifest = reports.manifest({("lvm", "searched"): search, ("teacher", "beam-4"): DECODES["teacher", "beam-4"]})
    qualities = {row.quality: VARIANTS for row in manifest.rows}
    rows = results.build_rows(manifest, qualities, None, "test")
    assert {(row.system, row.candidates, row.settings.get("samples")) for row in rows} == {
        ("lvm", 6, 2),
        ("teacher", None, None),
    }


def test_rows_say_what_dev_chose_and_the_steps_that_stopping_left():
    key = ("lvm", "delta-2")
    manifest = reports.manifest({key: DECODES[key]}, picked={key: [{"stop_threshold": 0.4}]})
    qualities = {row.quality: VARIANTS | {"mean_steps": 1.25} for row in manifest.rows}
    rows = results.build_rows(manifest, qualities, None, "test")
    assert {(row.mean_steps, row.chosen["stop_threshold"]) for row in rows} == {(1.25, 0.4)}
    plain = results.build_rows(MANIFEST, {name: q | {"mean_steps": 2.0} for name, q in QUALITIES.items()}, None, "test")
    assert {(row.system, row.mean_steps, row.chosen) for row in plain} == {("teacher", None, None), ("lvm", 2.0, None)}


def test_speed_stands_beside_the_rows_it_was_measured_for():
    timed = {"latency_ms": 4.0, "latency_std": 1.0, "sentences_per_second": 500.0, "speedup": 2.5, "batch": 32}
    timed |= {"latency_rounds": [3.9, 4.1]}
    speed = reports.speed(reports.timed("lvm", "delta-2", 4.0, **timed), threads=2)
    rows = [row.model_dump(mode="json") for row in results.build_rows(MANIFEST, QUALITIES, speed, "test")]
    assert rows[0]["latency_ms"] is None and rows[0]["threads"] is None
    assert rows[1] | timed | {"device": "cpu", "threads": 2} == rows[1]


def test_tables_are_of_test_unless_there_is_only_dev():
    assert results.table_split(reports.manifest(DECODES, splits=("dev", "test"))) == "test"
    assert results.table_split(reports.manifest(DECODES, splits=("dev",))) == "dev"


def test_engines_are_named_in_one_word():
    assert Decode.model_validate({"search": "beam"}).engine_word == "eager"
    int8 = {"engine": "ctranslate2", "compute_type": "int8"}
    assert Decode.model_validate({"search": "beam"} | int8).engine_word == "ctranslate2-int8"
    manifest = reports.manifest({("teacher", "fast"): DECODES["teacher", "beam-4"] | reports.INT8})
    (row,) = results.build_rows(manifest, {row.quality: VARIANTS for row in manifest.rows}, None, "test")
    assert row.engine == "ctranslate2-int8"


def test_another_format_is_refused():
    with pytest.raises(ArtifactError) as refused:
        results.validate(_content() | {"format": results.FORMAT + 1}, "here")
    fields = {"path": "here", "problem": other_format(results.FORMAT + 1, results.FORMAT)}
    assert fields_of(refused.value, fields) == fields


DIFFERENCE = {"difference": 0.3, "error": 0.1, "sentence": 0.02}
RIVAL = {"system": "teacher", "name": "beam-4", "bleu": DIFFERENCE, "validity": DIFFERENCE}


def _significance(tmp_path, tested):
    key = {"system": "lvm", "name": "delta-2", "seed": 1}
    content = {"format": FORMAT, "test": {"name": "a test"}, "rows": [key | tested], "against_delta": [key | tested]}
    content |= {"sentences": 9, "against_autoregressive": [key | {"against": [RIVAL]}]}
    (tmp_path / "significance.json").write_text(json.dumps(content))
    return results.read_significance(tmp_path / "significance.json")


def test_p_values_stand_beside_their_rows(tmp_path):
    tested = {
        "p_value": dict(zip(VARIANTS, (0.25, 0.4, 0.5), strict=True)),
        "difference": dict(zip(VARIANTS, (-1.0, 1.0, 2.0), strict=True)),
    }
    significance = _significance(tmp_path, tested)
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test", significance)
    p_values = [(row.p_value, row.control_p_value, row.control_difference) for row in rows]
    assert p_values == [(None, None, None), (0.25, 0.25, -1.0), (0.4, 0.4, 1.0), (0.5, 0.5, 2.0)]
    assert [row.repetitions_removed for row in rows] == ["none", "none", "words", "subwords"]
    pair = (("lvm", "delta-2", 1), ("teacher", "beam-4", 1))
    assert significance.pairs == {pair: dict.fromkeys(("bleu", "validity"), PairedDifference(0.3, 0.1, 0.02))}
    assert significance.sentences == 9
    # They are of test: dev has none.
    manifest_of_both = reports.manifest(DECODES, splits=("dev", "test"))
    dev = results.build_rows(
        manifest_of_both, {row.quality: VARIANTS for row in manifest_of_both.rows}, None, "dev", significance
    )
    assert len(dev) == 4 and {(row.p_value, row.control_p_value) for row in dev} == {(None, None)}
