"""The schema of results.json: exactly its keys, checked when written and when read."""

import json

import pytest

from workflow_src.evaluation.report import results

KEYS = [
    "system",
    "family",
    "preset",
    "data",
    "seed",
    "name",
    "chosen",
    "search",
    "engine",
    "steps",
    "mean_steps",
    "beam",
    "candidates",
    "repetitions_removed",
    "bleu",
    "bleu_ci",
    "bleu_tokenised",
    "bleu_intl_lowercase",
    "p_value",
    "delta_difference",
    "delta_p_value",
    "chrf",
    "validity",
    "latency_ms",
    "latency_std",
    "latency_rounds",
    "sentences_per_second",
    "speedup",
    "device",
    "threads",
    "batch",
]
ROW = {
    "system": "lvm",
    "family": "lvm",
    "preset": "tiny",
    "data": "distilled",
    "seed": 1,
    "name": "delta-2",
    "chosen": None,
    "search": "delta",
    "engine": "continuum",
    "steps": 2,
    "mean_steps": None,
    "beam": None,
    "candidates": None,
    "repetitions_removed": "subwords",
    "bleu": 30.0,
    "bleu_ci": [29.0, 31.0],
    "bleu_tokenised": 31.5,
    "bleu_intl_lowercase": 33.5,
    "p_value": None,
    "delta_difference": None,
    "delta_p_value": None,
    "chrf": 50.0,
    "validity": 0.5,
    "latency_ms": 3.0,
    "latency_std": 1.0,
    "latency_rounds": [2.9, 3.0, 3.2],
    "sentences_per_second": 900.0,
    "speedup": 2.0,
    "device": "cpu",
    "threads": 1,
    "batch": 64,
}


def _content(**changes):
    return {"experiment": "e", "dataset": "toy", "provenance": {}, "rows": [ROW | changes]}


def test_keys_are_those_agreed_and_survive_writing(tmp_path):
    assert list(results.Row.model_fields) == KEYS
    results.write_results(tmp_path / "results.json", _content())
    raw = json.loads((tmp_path / "results.json").read_text())
    assert set(raw) == {"experiment", "dataset", "provenance", "rows"}
    assert raw["rows"] == [ROW]
    assert results.read_results(tmp_path / "results.json").rows[0].bleu == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bleu": 101}, r"rows.0.bleu \(value '101'\)"),
        ({"bleu": float("nan")}, "rows.0.bleu"),
        ({"bleu_ci": [31.0, 29.0]}, "low not above high"),
        ({"data": "distilled-by-teacher"}, "rows.0.data.*'raw' or 'distilled'"),
        ({"validity": 50}, "rows.0.validity"),
        ({"latency_ms": 0}, "rows.0.latency_ms"),
        ({"latency_rounds": [2.9, 0]}, "rows.0.latency_rounds.1"),
        ({"p": 0.1}, r"rows.0.p \(value '0.1'\)"),
        ({"seed": None}, "rows.0.seed"),
        ({"repetitions_removed": "letters"}, "rows.0.repetitions_removed.*'none', 'words' or 'subwords'"),
    ],
)
def test_wrong_rows_are_refused_by_name_and_nothing_is_written(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        results.write_results(tmp_path / "results.json", _content(**changes))
    assert list(tmp_path.iterdir()) == []


def test_missing_keys_are_named(tmp_path):
    content = _content()
    del content["rows"][0]["speedup"]
    with pytest.raises(ValueError, match="rows.0.speedup: [Ff]ield required"):
        results.validate(content, "here")


MANIFEST = {
    "systems": {
        "teacher": {"family": "transformer", "preset": "tiny", "data": "raw", "base": None},
        "lvm": {"family": "lvm", "preset": "tiny", "data": "distilled-by-teacher", "base": None},
    },
    "rows": [
        {
            "system": "teacher",
            "name": "beam-4",
            "seed": 1,
            "split": "test",
            "quality": "t",
            "settings": {"search": "beam", "beam": 4},
        },
        {
            "system": "lvm",
            "name": "delta-2",
            "seed": 1,
            "split": "test",
            "quality": "l",
            "settings": {"search": "delta", "steps": 2},
        },
        {
            "system": "lvm",
            "name": "delta-2",
            "seed": 1,
            "split": "dev",
            "quality": "d",
            "settings": {"search": "delta", "steps": 2},
        },
    ],
}
VARIANT = {"bleu": 30.0, "bleu_ci": [29.0, 31.0], "chrf": 50.0, "validity": None, "bleu_tokenised": 30.5}
VARIANT |= {"bleu_intl_lowercase": 32.5}
VARIANTS = {
    "kept": VARIANT,
    "without_repeated_words": VARIANT | {"bleu": 31.0},
    "without_repeated_subwords": VARIANT | {"bleu": 31.5},
}
QUALITIES = {name: VARIANTS for name in "tl"}


def test_autoregressive_rows_come_once_and_others_with_each_removal():
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test")
    assert [(r["system"], r["repetitions_removed"], r["bleu"]) for r in rows] == [
        ("teacher", "none", 30.0),
        ("lvm", "none", 30.0),
        ("lvm", "words", 31.0),
        ("lvm", "subwords", 31.5),
    ]
    assert {(r["bleu_tokenised"], r["bleu_intl_lowercase"]) for r in rows} == {(30.5, 32.5)}
    assert rows[0]["beam"] == 4 and rows[0]["steps"] is None and rows[1]["steps"] == 2
    assert rows[1]["data"] == "distilled" and rows[0]["data"] == "raw"
    assert all(r["latency_ms"] is None and r["device"] is None for r in rows)
    content = {"experiment": "e", "dataset": "d", "provenance": {}, "rows": rows}
    assert len(results.validate(content, "here").rows) == 4


def test_rows_tell_what_dev_chose_and_the_steps_that_stopping_left():
    entry = MANIFEST["rows"][1] | {"picked": {"stop_threshold": 0.4}}
    entry["settings"] = entry["settings"] | entry["picked"]
    qualities = QUALITIES | {entry["quality"]: QUALITIES[entry["quality"]] | {"mean_steps": 1.25}}
    rows = results.build_rows(MANIFEST | {"rows": [entry]}, qualities, None, "test")
    assert {(row["mean_steps"], row["chosen"]["stop_threshold"]) for row in rows} == {(1.25, 0.4)}
    plain = results.build_rows(MANIFEST, qualities, None, "test")
    assert {(row["mean_steps"], row["chosen"]) for row in plain} == {(None, None)}


def test_speed_stands_beside_the_rows_it_was_measured_for():
    timed = {"latency_ms": 4.0, "latency_std": 1.0, "sentences_per_second": 500.0, "speedup": 2.5, "batch": 32}
    timed |= {"latency_rounds": [3.9, 4.1]}
    speed = {"rows": [timed | {"system": "lvm", "name": "delta-2"}], "protocol": {"device": "cpu", "threads": 2}}
    rows = results.build_rows(MANIFEST, QUALITIES, speed, "test")
    assert rows[0]["latency_ms"] is None and rows[0]["threads"] is None
    assert rows[1] | timed | {"device": "cpu", "threads": 2} == rows[1]


def test_tables_are_of_test_unless_there_is_only_dev():
    assert results.table_split(MANIFEST) == "test"
    assert results.table_split({"rows": MANIFEST["rows"][2:]}) == "dev"


def test_engines_are_told_in_one_word():
    assert results.engine_of({"search": "beam"}) == results.engine_of({"engine": "continuum"}) == "continuum"
    assert results.engine_of({"engine": "ctranslate2", "compute_type": "int8"}) == "ctranslate2-int8"
    entry = MANIFEST["rows"][0] | {
        "settings": {"search": "beam", "beam": 4, "engine": "ctranslate2", "compute_type": "int8"}
    }
    assert [row["engine"] for row in results.build_rows(MANIFEST | {"rows": [entry]}, QUALITIES, None, "test")] == [
        "ctranslate2-int8"
    ]


def test_results_from_before_a_key_existed_can_be_read():
    content = _content()
    for key in ("engine", "delta_difference", "delta_p_value", "latency_rounds"):
        del content["rows"][0][key]
    (row,) = results.validate(content, "here").rows
    assert (row.engine, row.delta_difference, row.latency_rounds) == ("continuum", None, None)


def test_p_values_stand_beside_their_rows():
    key = {"system": "lvm", "name": "delta-2", "seed": 1}
    tested = {
        "p_value": dict(zip(VARIANTS, (0.25, 0.4, 0.5), strict=True)),
        "difference": dict(zip(VARIANTS, (-1.0, 1.0, 2.0), strict=True)),
    }
    significance = {"rows": [key | tested], "against_delta": [key | tested]}
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test", significance)
    found = [(row["p_value"], row["delta_p_value"], row["delta_difference"]) for row in rows]
    assert found == [(None, None, None), (0.25, 0.25, -1.0), (0.4, 0.4, 1.0), (0.5, 0.5, 2.0)]
    # They are of test: dev has none.
    dev = results.build_rows(MANIFEST, QUALITIES | {"d": QUALITIES["l"]}, None, "dev", significance)
    assert {(row["p_value"], row["delta_p_value"]) for row in dev} == {(None, None)}


@pytest.mark.parametrize(("earlier", "now"), [(True, "words"), (False, "none")])
def test_results_from_before_subwords_were_removed_knew_words(earlier, now):
    content = _content(repetitions_removed=earlier)
    del content["rows"][0]["bleu_tokenised"], content["rows"][0]["bleu_intl_lowercase"]
    row = results.validate(content, "here").rows[0]
    assert row.repetitions_removed == now and row.bleu_tokenised is None


def test_p_values_are_those_of_the_rows_own_variant():
    values = dict(zip(VARIANTS, (0.3, 0.2, 0.1), strict=True))
    significance = {"rows": [{"system": "lvm", "name": "delta-2", "seed": 1, "p_value": values}]}
    rows = results.build_rows(MANIFEST, QUALITIES, None, "test", significance)
    assert [(row["repetitions_removed"], row["p_value"]) for row in rows] == [
        ("none", None), ("none", 0.3), ("words", 0.2), ("subwords", 0.1),
    ]  # fmt: skip
