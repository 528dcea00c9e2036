"""The results as files: what their tables say of an experiment, and that damaged ones are refused."""

import json

import analysed
import pandas as pd
import pytest
import reports
from refusals import refuses
from titles import BEAM_4, DELTA

from workflow_src import registry
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.significance import FORMAT, PairedDifference
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report import files, results
from workflow_src.records.checked import other_format

DECODES = {("teacher", "beam-4"): {"search": "beam", "beam": 4}, ("lvm", "delta-2"): reports.stepped("delta", 2)}
MANIFEST = reports.manifest(DECODES)
VARIANT = {"bleu": 30.0, "bleu_ci": [29.0, 31.0], "chrf": 50.0, "validity": None, "bleu_tokenised": 30.5}
VARIANT |= {"bleu_intl_lowercase": 32.5}
VARIANTS = {
    "kept": VARIANT,
    "without_repeated_words": VARIANT | {"bleu": 31.0},
    "without_repeated_subwords": VARIANT | {"bleu": 31.5},
    "sentences": 9,
}


def qualities(manifest=MANIFEST, **fields):
    return {row.quality: Quality(**VARIANTS | fields) for row in manifest.rows}


def figures(measured, *names) -> dict:
    """Figures by system, variant and name."""
    lines = measured.figures[measured.figures["figure"].isin(names)]
    return {
        tuple(key): value for *key, value in lines[["system", "variant", "figure", "value"]].itertuples(index=False)
    }


def written(folder, *rows):
    row = reports.row("lvm", "delta-2", 30.0, p=0.25, latency_rounds=(2.9, 3.1), threads=2)
    reports.results(rows or [row]).write(folder)
    return folder


def test_results_survive_writing_to_the_last_digit(tmp_path):
    manifest = reports.manifest(DECODES)
    exact = Quality(**VARIANTS | {"kept": VARIANT | {"bleu": 100 / 3}})
    measured = results.build(manifest, qualities(mean_steps=1 / 3) | {MANIFEST.rows[0].quality: exact})
    measured.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "figures.csv", "provenance.json"}
    loaded = results.read_results(tmp_path)
    pd.testing.assert_frame_equal(loaded.rows, measured.rows)
    pd.testing.assert_frame_equal(loaded.figures, measured.figures)
    measured.record.provenance.update(loaded.record.provenance)
    assert loaded.record == measured.record and loaded.record.reference == ("teacher", "beam-4")


def test_names_that_look_like_missing_values_are_names(tmp_path):
    named = reports.row("lvm", "nan", 30.0) | {"system": "None", "chosen": ""}
    loaded = results.read_results(written(tmp_path, named))
    assert [*results.means(loaded.figures)] == [("None", "nan")] and loaded.rows["system"].tolist() == ["None"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bleu,30.0,", "bleu,130.0,", ("outside of the bounds", "line 2")),
        ("bleu,30.0,", "bleu,,", ("no number", "line 2")),
        ("bleu,30.0,", "bleu,high,", ("'high' as value", "line 2")),
        ("delta-2,1,", "delta-2,one,", ("'one' as seed",)),
        ("delta-2,1,", "delta-2,99999999999999999999,", ("as seed", "line 2")),
        ("30.0,29.0,31.0", "30.0,29.0,inf", ("'inf' as high", "line 2")),
        (",,\n", ",\n", ("cells",)),
        ("\ntest,lvm,delta-2,1,none,bleu,30.0,", "\n\ntest,lvm,delta-2,1,none,bleu,130.0,", ("bounds", "line 3")),
        ("\ntest,lvm,delta-2,1,none,bleu,30.0,", "\n\ntest,lvm,delta-2,1,none,bleu,high,", ("as value", "line 3")),
        ("30.0,29.0,31.0", "30.0,31.0,29.0", ("low above high",)),
        (",0.25,", ",1.25,", ("p-value",)),
        ("delta-2,1,none,bleu", "delta-2,2,none,bleu", ("rows.csv lacks",)),
        ("none,chrf", "none,bleu", ("twice", "line 3")),
        ("figure,value", "value,figure", ("other columns", "their order")),
        ("against", "versus", ("against, versus",)),
    ],
)
def test_damaged_figures_are_named_with_their_line(tmp_path, old, new, words):
    path = written(tmp_path) / "figures.csv"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ArtifactError) as refused:
        results.read_results(tmp_path)
    assert "figures.csv" in str(refused.value) and all(word in str(refused.value) for word in words)


def test_a_time_that_is_not_above_0_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ArtifactError, match="not above 0"):
        written(tmp_path, reports.row("lvm", "delta-2", 30.0, latency_ms=0.0))
    assert list(tmp_path.iterdir()) == []


def test_another_format_and_a_lacking_key_are_refused(tmp_path):
    path = written(tmp_path) / "provenance.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"format": results.FORMAT + 1}))
    with refuses(ArtifactError, path=str(path), problem=other_format(results.FORMAT + 1, results.FORMAT)):
        results.read_results(tmp_path)
    path.write_text(json.dumps({key: value for key, value in record.items() if key != "splits"}))
    with pytest.raises(ArtifactError, match="splits: missing"):
        results.read_results(tmp_path)


def test_autoregressive_figures_come_once_and_others_with_each_removal():
    measured = results.build(MANIFEST, qualities())
    assert figures(measured, "bleu") == {
        ("teacher", "none", "bleu"): 30.0,
        ("lvm", "none", "bleu"): 30.0,
        ("lvm", "words", "bleu"): 31.0,
        ("lvm", "subwords", "bleu"): 31.5,
    }
    assert set(figures(measured, "bleu_tokenised", "bleu_intl_lowercase").values()) == {30.5, 32.5}
    assert not figures(measured, "validity", "latency_ms")
    teacher, lvm = measured.rows.to_dict("records")
    # Settings are there whether a decode says them or not.
    settings = [json.loads(row["settings"]) for row in (teacher, lvm)]
    assert (settings[0]["beam"], settings[0]["length_penalty"]) == (4, 1.0) and "steps" not in settings[0]
    assert (settings[1]["steps"], settings[1]["length_quantile"]) == (2, None)
    assert teacher["label"] == BEAM_4 and lvm["label"] == f"{DELTA}, L = 2"
    assert (teacher["autoregressive"], lvm["autoregressive"]) == (True, False)
    assert (teacher["data"], lvm["data"]) == ("raw", "distilled")
    assert set(measured.figures["n"]) == {9}


def test_energies_stand_beside_the_variant_that_they_are_of_and_on_their_split():
    common = {"scorer": "teacher", "seed": 1, "error": 0.5, "sentences": 9, "unscored": 1}
    rows = [
        common | {"system": "teacher", "name": "beam-4", "repetitions_removed": "none", "energy_per_sentence": 10.0},
        common | {"system": "lvm", "name": "delta-2", "repetitions_removed": "words", "energy_per_sentence": 11.0},
    ]
    rows = [row | {"energy_per_token": row["energy_per_sentence"] / 10} for row in rows]
    # Those of the main table are under the first scorer.
    rows += [row | {"scorer": "other", "energy_per_sentence": 99.0} for row in rows]
    (content,) = analysed.read(analysed.raw("energies", split="test", rows=rows)).values()
    measured = results.build(MANIFEST, qualities(), analysed=[content])
    assert figures(measured, *registry.figures_of_rows()) == {
        ("teacher", "none", "energy_per_sentence"): 10.0,
        ("teacher", "none", "energy_per_token"): 1.0,
        ("lvm", "words", "energy_per_sentence"): 11.0,
        ("lvm", "words", "energy_per_token"): 1.1,
    }
    energies = measured.figures[measured.figures["figure"] == "energy_per_sentence"]
    assert set(energies["n"]) == {9} and set(energies["split"]) == {"test"}
    other_split = analysed.read(analysed.raw("energies", rows=rows)).values()
    assert not figures(results.build(MANIFEST, qualities(), analysed=other_split), *registry.figures_of_rows())


def test_rows_say_what_dev_chose_and_the_steps_that_stopping_left():
    key = ("lvm", "delta-2")
    manifest = reports.manifest({key: DECODES[key]}, picked={key: [{"stop_threshold": 0.4}]})
    measured = results.build(manifest, qualities(manifest, mean_steps=1.25))
    assert figures(measured, "mean_steps") == {("lvm", "", "mean_steps"): 1.25}
    assert json.loads(measured.rows["chosen"].iloc[0]) == {"stop_threshold": 0.4}
    # Greedy search has no steps.
    plain = results.build(MANIFEST, qualities(mean_steps=2.0))
    assert figures(plain, "mean_steps") == {("lvm", "", "mean_steps"): 2.0} and set(plain.rows["chosen"]) == {""}


def test_speed_stands_beside_the_rows_it_was_measured_for_on_the_split_of_the_tables():
    timed = {"latency_std": 1.0, "sentences_per_second": 500.0, "speedup": 2.5, "batch": 32}
    reference = {"system": "teacher", "name": "beam-4"}
    protocol = {"threads": 2, "baseline": reference, "other_load_cores": [0.1, 0.5]}
    speed = reports.speed(reports.timed("lvm", "delta-2", 4.0, latency_rounds=[3.9, 4.1], **timed), **protocol)
    manifest = reports.manifest(DECODES, splits=("dev", "test"))
    measured = results.build(manifest, qualities(manifest), speed=speed)
    times = measured.figures[measured.figures["figure"].isin(results.TIMES)]
    assert set(times["split"]) == {"test"} and set(times["system"]) == {"lvm"}
    assert {name: value for (_, _, name), value in figures(measured, *results.TIMES).items()} == {
        "latency_ms": 4.0,
        "latency_std": 1.0,
        "sentences_per_second": 500.0,
        "speedup": 2.5,
    }
    assert times.loc[times["figure"] == "speedup", "against"].tolist() == ["teacher/beam-4"]
    row = measured.rows.to_dict("records")[1]
    assert (row["device"], row["threads"], row["batch"]) == ("cpu", 2, 32)
    assert (json.loads(row["latency_rounds"]), json.loads(row["disturbed_rounds"])) == ([3.9, 4.1], [2])


def test_tables_are_of_test_unless_there_is_only_dev():
    assert reports.manifest(DECODES, splits=("dev", "test")).plan.shown_split == "test"
    assert reports.manifest(DECODES, splits=("dev",)).plan.shown_split == "dev"


def test_means_say_over_how_many_seeds_they_are():
    rows = [reports.row("lvm", "delta-2", bleu, seed, chrf=chrf) for seed, bleu, chrf in ((1, 30, 50), (2, 33, None))]
    means = results.means(reports.results(rows).figures)["lvm", "delta-2"]
    assert (means["bleu"].value, means["bleu"].seeds, means["bleu"].low) == (31.5, 2, None)
    assert means["bleu"].text(1, 2) == "31.5 ± 2.1" and means["chrf"].text(1, 2) == "50.0 (1 of 2 seeds)"
    assert means["chrf"].text(2, 1, 0.5) == "25.00"


def test_p_values_stand_beside_their_rows_on_their_split(tmp_path):
    pair = {"system": "lvm", "name": "delta-2", "seed": 1, "metric": "bleu", "variant": "subwords", "difference": 0.3}
    tested = pair | {"why": "baseline", "other": ["lvm", "prior-mean"], "p_value": 0.5}
    rival = pair | {"why": "autoregressive", "other": ["teacher", "beam-4"], "error": 0.1, "sentence": 0.02}
    test = {"name": "a test", "trials": 9}
    (tmp_path / "significance.json").write_text(json.dumps({"format": FORMAT, "test": test, "pairs": [tested, rival]}))
    significance = files.read_significance(tmp_path / "significance.json")
    manifest = reports.manifest(DECODES, splits=("dev", "test"))
    lines = results.build(manifest, qualities(manifest), tested={"test": significance}).figures.dropna(subset="p")
    columns = ["split", "system", "variant", "figure", "p", "against"]
    assert lines[columns].to_numpy().tolist() == [["test", "lvm", "subwords", "bleu", 0.5, "lvm/prior-mean"]]
    between = (("lvm", "delta-2", 1), ("teacher", "beam-4", 1))
    assert significance.pairs == {between: {"bleu": PairedDifference(0.3, 0.1, 0.02)}}
