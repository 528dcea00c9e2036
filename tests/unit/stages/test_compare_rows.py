"""p-values of an experiment's rows, from its translations."""

from __future__ import annotations

import json
import random

import pytest

from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.evaluation.significance import p_values

WORDS = "the a red green house tree old man walks sees under over big small".split()


@pytest.fixture
def rows(tmp_path):
    source = random.Random(1)
    references = [" ".join(source.choices(WORDS, k=9)) for _ in range(40)]

    def row(system, name, share, baseline, autoregressive=False, seed=1):
        spoiled = [
            " ".join(source.choice(WORDS) if source.random() < share else word for word in line.split())
            for line in references
        ]
        # Repetitions, so that the variants differ.
        joined = [f"{line.split()[-1][:2]} {line}" for line in spoiled]
        spoiled = [f"{line.split()[0]} {line}" for line in spoiled]
        path = tmp_path / f"{system}-{name}-{seed}.txt"
        path.write_text("".join(f"{line}\n" for line in spoiled))
        details = path.with_suffix(".jsonl")
        details.write_text("".join(json.dumps({"without_repeated_subwords": line}) + "\n" for line in joined))
        made = {"system": system, "name": name, "seed": seed, "baseline": baseline, "autoregressive": autoregressive}
        return made | {"translations": str(path), "details": str(details)}

    (tmp_path / "reference.txt").write_text("".join(f"{line}\n" for line in references))
    found = [
        row("teacher", "beam-4", 0.1, None, True),
        row("lvm", "prior-mean", 0.4, ["teacher", "beam-4"]),
        row("score", "score-1", 0.35, ["lvm", "prior-mean"]),
        row("score", "score-1", 0.35, ["lvm", "prior-mean"], seed=2),
    ]
    return found, references


def test_rows_are_compared_with_their_baseline_of_the_same_seed(rows, run_stage, tmp_path):
    listed, references = rows
    output = tmp_path / "significance.json"
    words = ["--settings", json.dumps({"rows": listed}), "--reference", str(tmp_path / "reference.txt")]
    run_stage("compare_rows", [*words, "--output", str(output)])
    found = json.loads(output.read_text())["rows"]
    # Seed 2 has no prior mean to be compared with.
    assert [(row["system"], row["seed"]) for row in found] == [("lvm", 1), ("score", 1)]
    text = {row["system"]: open(row["translations"]).read().splitlines() for row in listed[:3]}
    short = {system: [collapse_repetitions(line) for line in lines] for system, lines in text.items()}
    told = {row["system"]: open(row["details"]).read().splitlines() for row in listed[:3]}
    joined = {name: [json.loads(line)["without_repeated_subwords"] for line in lines] for name, lines in told.items()}
    prior, refined = found
    assert refined["baseline"] == ["lvm", "prior-mean"]
    by_hand = {"kept": text, "without_repeated_words": short, "without_repeated_subwords": joined}
    assert refined["p_value"] == {
        variant: p_values(lines["lvm"], {"x": lines["score"]}, references)["x"] for variant, lines in by_hand.items()
    }
    # What is autoregressive keeps its repetitions in all variants.
    assert prior["p_value"] == {
        variant: p_values(text["teacher"], {"x": lines["lvm"]}, references)["x"] for variant, lines in by_hand.items()
    }
    assert prior["p_value"]["kept"] < 0.05


def test_an_experiment_without_test_rows_has_an_empty_comparison(run_stage, tmp_path):
    (tmp_path / "reference.txt").write_text("a\n")
    words = ["--settings", json.dumps({"rows": []}), "--reference", str(tmp_path / "reference.txt")]
    run_stage("compare_rows", [*words, "--output", str(tmp_path / "significance.json")])
    assert json.loads((tmp_path / "significance.json").read_text())["rows"] == []
