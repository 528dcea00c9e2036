"""Text in captions of tables: checksums as of `sha256sum`, and lengths of trainings."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import reports

from workflow_src.evaluation.report import carried
from workflow_src.records.provenance import digests


def system(name, family, updates, tokens, seed=1):
    row = reports.row("lvm", "decode", 30.0, seed, updates=updates, target_tokens=tokens)
    return row | {"system": name, "family": family}


def rows_of(systems, names):
    """rows.csv of those of the systems that have these names."""
    return reports.results([system for system in systems if system["system"] in names]).rows


SYSTEMS = [
    system("lvm", "lvm", 3000, 5589946),
    system("score", "score", 1200, 2236982),
    system("score", "score", 1200, 2236867, 2),
    system("energy", "energy", 500, 930584),
    system("energy-long", "energy", 1200, 2236001),
]


def test_a_checksum_is_that_of_the_sums_of_all_texts(tmp_path):
    for name, text in (("train.de", "Größe\n"), ("dev.en", "a\n"), ("train.en", "b\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    sums = digests(tmp_path, ["train.en", "train.de", "dev.en"])
    if not shutil.which("sha256sum"):
        pytest.skip("there is no sha256sum to compare with")
    script = "LC_ALL=C; export LC_ALL; sha256sum * | sha256sum"
    printed = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert carried.checksum(sums) == printed.split()[0]
    assert carried.data("toy", sums, [2, 1, 2]) == f"toy, SHA-256 {printed[:12]}…; seeds 1, 2."
    assert carried.checksum({}) is None and carried.data("toy", None, [1]) == "toy, checksum unknown; seed 1."


def test_networks_that_differ_in_training_are_named_with_their_updates():
    sentence = carried.unequal(rows_of(SYSTEMS, {"lvm", "score", "energy"}))
    assert sentence == (
        "Networks were not trained equally long (figures of the first seed): score 1,200 updates, 2,236,982 target "
        "tokens; "
        "energy 500 updates, 930,584 target tokens."
    )
    # A model is no network that refines; tokens differ a little from one network to another, and one is like itself.
    assert carried.unequal(rows_of(SYSTEMS, {"lvm", "score", "energy-long"})) == ""
    assert carried.unequal(rows_of(SYSTEMS, {"lvm", "energy"})) == carried.unequal(rows_of([], {"score"})) == ""


def test_equal_updates_on_larger_batches_are_no_equal_training():
    larger = [*SYSTEMS[:2], system("energy", "energy", 1200, 4400000)]
    assert "energy 1,200 updates, 4,400,000 target tokens" in carried.unequal(rows_of(larger, {"score", "energy"}))
    # Unknown numbers count as equal.
    assert carried.unequal(rows_of([SYSTEMS[1], system("energy", "energy", 1200, None)], {"score", "energy"})) == ""
