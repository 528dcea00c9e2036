"""The leaderboard: rows as data, one variant of each, means over seeds, and tables that nobody edits."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shlex

import pytest
import reports
from conftest import PROJECT
from reports import squeezed
from titles import BLEU, CHRF

from workflow_src.cli import main
from workflow_src.config.files import experiment_names
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.report import leaderboard, leaderboard_tables, markdown, needs
from workflow_src.evaluation.report.carried import checksum
from workflow_src.registry import searches
from workflow_src.serving import options

BOARD = PROJECT / "docs/results/leaderboard.csv"
PAGES = [
    page
    for page in (PROJECT / "README.md", *sorted((PROJECT / "docs/results").glob("*.md")))
    if "<!-- leaderboard:" in page.read_text(encoding="utf-8")
]


def row(system, family, search, bleu, latency=None, removed="none", seed=1, engine="eager", **settings):
    """A row and its figures; its decode has the name of the search and its settings."""
    values = searches()[search].settings(**settings).model_dump(mode="json")
    tuned = {name: None for name in searches()[search].settings.named("tune") if name in settings}
    name = " ".join([search, *(f"{name}={value}" for name, value in (settings | tuned).items())])
    row = reports.row("lvm", name if engine == "eager" else f"{name} {engine}", bleu, seed, removed, settings=values)
    row |= {"system": system, "family": family, "search": search, "engine": engine, "latency_ms": latency, "chrf": 50.0}
    row |= {"autoregressive": family == "transformer", "means_repetitions": family == "nat"}
    return row | {"device": "cpu", "threads": 1, "batch": 64}


def content(rows, name="one", **fields):
    return reports.results(rows, experiment=name, dataset="corpus", **fields)


def board_rows(rows, **fields):
    return leaderboard.rows_of(content(rows, **fields))


def test_a_row_says_what_was_trained_and_measured_as_data():
    sums = {"train.de": "aa" * 32, "dev.de": "ef" * 32, "test.de": "ab" * 32, "test.en": "cd" * 32}
    machine = {"processor": "CPU", "cores": 4, "accelerator": None, "system": "Linux"}
    provenance = {
        "commit": "c0ffee",
        "corpus": {"sha256": sums},
        "hardware": {"processor": "other", "cores": 1},
        "speed": {"provenance": {"hardware": machine}},
    }
    trained = {"trained_on": "distilled-by-teacher", "parameters": 9, "updates": 400, "target_tokens": 7}
    scored = row("score", "score", "score", 30.126, 2.5, "subwords", seed=2, steps=2) | trained
    signatures = {"test": {BLEU: "nrefs:1|tok:13a", CHRF: "nc:6"}}
    (entry,) = board_rows([scored], provenance=provenance, signatures=signatures)
    settings = json.loads(entry["settings"])
    assert settings["steps"] == 2 and settings["length_quantile"] is None
    said = {
        "corpus": "corpus",
        "test_set": f"test:{checksum({n: s for n, s in sums.items() if n.startswith('test')})[:12]}",
        "dev_set": checksum({"dev.de": "ef" * 32})[:12],
        "data": "distilled-by-teacher",
        "seed": "2",
        "bleu": "30.1260",
        "bleu_high": "31.1260",
        "comet": "",
        "latency_ms": "2.5000",
        "sentences_per_second": "",
        "target_tokens": "7",
        "hardware": "CPU, 4 cores",
        "commit": "c0ffee",
        "signature": "nrefs:1|tok:13a; nc:6",
    }
    assert said.items() <= entry.items()


def test_every_test_set_has_rows_and_tables_show_the_first():
    rows = [row("teacher", "transformer", "greedy", 30.0, 2.5), row("score", "score", "score", 20.0, 1.5, "subwords")]
    rows += [row | {"bleu": row["bleu"] + 50, "bleu_ci": None, "latency_ms": None, "split": "news"} for row in rows]
    provenance = {"corpus": {"sha256": {"test.en": "ab" * 32, "news.en": "cd" * 32}}}
    signatures = {"test": {BLEU: "nrefs:1"}, "news": {BLEU: "nrefs:2"}}
    board = board_rows(rows, splits=["test", "news"], signatures=signatures, provenance=provenance)
    assert [(row["test_set"].partition(":")[0], float(row["bleu"]), row["signature"]) for row in board] == [
        ("test", 30.0, "nrefs:1"),
        ("test", 20.0, "nrefs:1"),
        ("news", 80.0, "nrefs:2"),
        ("news", 70.0, "nrefs:2"),
    ]
    assert board[2]["test_set"] == f"news:{checksum({'news.en': 'cd' * 32})[:12]}" and board[2]["latency_ms"] == ""
    assert [entry.quality for entry in leaderboard_tables.entries(leaderboard.merge([board]))] == [30.0, 20.0]


def test_a_figure_of_a_trained_model_stands_beside_the_signature_of_the_model():
    scored = row("teacher", "transformer", "greedy", 40.0) | {"comet": 81.25, "comet_ci": [80.0, 82.5]}
    signatures = {"test": {BLEU: "tok:13a", CHRF: "nc:6", "COMET": "model:large|sha256:abc"}}
    (entry,) = board_rows([scored], signatures=signatures, metrics=["bleu", "chrf", "comet"])
    assert [entry[name] for name in ("comet", "comet_low", "comet_high")] == ["81.2500", "80.0000", "82.5000"]
    assert entry["signature"] == "tok:13a; nc:6; model:large|sha256:abc"


def test_dev_decides_where_all_rows_that_are_compared_were_decoded_there():
    rows = [
        row("ctc", "nat", "ctc-greedy", 41.0),
        row("ctc", "nat", "ctc-beam", 43.0, beam=5),
        row("teacher", "transformer", "greedy", 45.0),
    ]
    rows += [rows[0] | {"split": "dev", "bleu": 39.0}, rows[1] | {"split": "dev", "bleu": 38.0}]
    board = board_rows(rows)
    assert [of_row["bleu_dev"] for of_row in board] == ["39.0000", "38.0000", ""]
    assert list(csv.DictReader(io.StringIO(leaderboard.csv_text(board)))) == board
    needed = leaderboard_tables.needs(leaderboard_tables.entries(board))
    assert {need: entry.quality for need, entry in needed.items()} == {
        "one pass by itself": 41.0,
        # The teacher was not decoded on dev, so that test decides.
        "best of all": 45.0,
        "autoregressive search": 45.0,
    }
    table = markdown.table(leaderboard_tables.experiment_table(leaderboard_tables.entries(board)))
    assert "BLEU on dev" in table and " 39.0 | 41.0 |" in squeezed(table)


@pytest.mark.parametrize(("other", "best"), [("11", 40.0), ("22", 45.0), (None, 45.0)])
def test_dev_decides_between_experiments_of_one_dev_set(other, best):
    """Two experiments with one test set; dev prefers the row that is lower on test."""

    def boards(name: str, bleu: float, on_dev: float, digits: str | None):
        decoded = row("ctc", "nat", "ctc-greedy", bleu)
        sums = {"test.en": "aa" * 32} | ({"dev.en": digits * 32} if digits else {})
        rows = [decoded, decoded | {"split": "dev", "bleu": on_dev}]
        return board_rows(rows, name=name, provenance={"corpus": {"sha256": sums}})

    merged = leaderboard.merge([boards("one", 45.0, 38.0, "11" if other else None), boards("two", 40.0, 44.0, other)])
    chosen = leaderboard_tables.needs(leaderboard_tables.entries(merged))
    assert chosen["best of all"].quality == best


def test_a_table_is_filled_with_the_best_of_other_kinds(monkeypatch):
    monkeypatch.setattr(leaderboard_tables, "MOST_ROWS", 3)
    rows = [
        row("teacher", "transformer", "greedy", 45.0),
        row("teacher", "transformer", "verified", 42.0, drafter="ctc", tolerance=3.0),
        row("teacher", "transformer", "beam", 43.0, beam=4, language_model="lm"),
        row("ctc", "nat", "ctc-greedy", 41.0),
    ]
    table = leaderboard_tables.selection(leaderboard_tables.entries(board_rows(rows)))
    assert [entry.quality for entry in table] == [45.0, 43.0, 41.0]


def test_entries_are_means_over_seeds_whatever_dev_chose_for_each():
    rows = [
        row("ctc", "nat", "ctc-beam", 40.0, 2.0, seed=1, beam=5, word_bonus=0.5),
        row("ctc", "nat", "ctc-beam", 43.0, 2.0, seed=2, beam=5, word_bonus=1.5),
        row("ctc", "nat", "ctc-beam", 39.0, 2.0, seed=1, beam=5),
        row("ctc", "nat", "ctc-beam", 39.0, 2.0, seed=2, beam=5),
        row("ctc", "nat", "ctc-beam", 50.0, 2.0, seed=1, beam=20),
    ]
    entries = leaderboard_tables.entries(board_rows(rows))
    assert [(entry.quality, entry.means["bleu"].text(1, 2)) for entry in entries] == [
        (41.5, "41.5 ± 2.1"),
        (39, "39.0 ± 0.0"),
        (50, "50.0 (1 of 2 seeds)"),
    ]


def test_a_run_that_is_read_again_takes_the_place_of_the_old_one():
    earlier = board_rows([row("a", "transformer", "greedy", 1.0), row("b", "transformer", "greedy", 2.0)])
    other_run = board_rows([row("a", "transformer", "greedy", 3.0)], name="two")
    later = board_rows([row("a", "transformer", "greedy", 4.0)])
    merged = leaderboard.merge([earlier, other_run, later])
    assert [(merged_row["experiment"], merged_row["bleu"]) for merged_row in merged] == [
        ("one", "4.0000"),
        ("two", "3.0000"),
    ]


def test_needs_are_served_by_the_fastest_of_rows_that_are_level():
    rows = [
        row("teacher", "transformer", "beam", 48.1, 4.0, beam=4),
        row("teacher", "transformer", "beam", 48.0, 1.3, engine="ctranslate2-int8", beam=4),
        row("teacher", "transformer", "greedy", 46.0, 0.9, engine="ctranslate2-int8"),
        # Drafts of another system: no rival by itself.
        row("teacher", "transformer", "verified", 47.9, 1.0, drafter="ctc"),
        row("ctc", "nat", "ctc-greedy", 41.0, 0.3, engine="onnxruntime-int8"),
        row("ctc", "nat", "ctc-beam", 48.4, 2.2, beam=20, language_model="lm"),
        row("ctc", "nat", "ctc-beam", 48.2, 0.4, engine="onnxruntime-int8", beam=20, language_model="lm"),
        row("ctc", "nat", "ctc-beam", 50.0, 9.0, beam=20, language_model="lm", rescorer="teacher"),
        row("lvm", "lvm", "prior-mean", 38.0, 0.5, "subwords"),
        row("score", "score", "score", 39.0, 3.0, "subwords", steps=4),
        row("score", "score", "score", 38.8, 2.0, "subwords", steps=1),
        row("score", "score", "latent-search", 44.0, 20.0, "subwords", refinement="score", rescorer="teacher"),
    ]
    entries = leaderboard_tables.entries(board_rows(rows))
    assert {need: (entry.quality, entry.latency_ms) for need, entry in leaderboard_tables.needs(entries).items()} == {
        needs.FASTEST_NEED: (48.2, 0.4),
        "one pass by itself": (41.0, 0.3),
        "one pass with a language model": (48.2, 0.4),
        "best of all": (50.0, 9.0),
        "autoregressive search": (48.0, 1.3),
    }
    # The best entry of each family without other systems, and the best autoregressive system's fastest row.
    chosen = [(entry.row["system"], entry.quality) for entry in leaderboard_tables.selection(entries)]
    assert chosen[:3] == [("teacher", 48.0), ("teacher", 47.9), ("teacher", 46.0)]
    assert {("ctc", 41.0), ("lvm", 38.0), ("score", 38.8), ("ctc", 50.0), ("ctc", 48.2)} <= set(chosen)
    assert ("teacher", 48.1) not in chosen and ("ctc", 48.4) not in chosen


def test_times_of_another_machine_choose_no_row():
    """The best row was timed on one machine; a faster one within the margin, on another."""

    def timed(hardware: str, *rows):
        return board_rows(list(rows), name=hardware, provenance={"hardware": {"processor": hardware}})

    best = row("ctc", "nat", "ctc-beam", 48.4, 2.2, beam=20, language_model="lm")
    faster = row("ctc", "nat", "ctc-beam", 48.2, 0.4, engine="onnxruntime-int8", beam=20, language_model="lm")

    def chosen(*boards) -> float:
        return leaderboard_tables.needs(leaderboard_tables.entries(leaderboard.merge(boards)))["best of all"].quality

    assert chosen(timed("one", best), timed("other", faster)) == 48.4
    assert chosen(timed("one", best, faster)) == 48.2


def test_a_table_of_a_corpus_has_one_direction_and_test_set_and_counts_the_others():
    """A better row of the opposite direction, and one of a run whose first test set is another one."""
    here = [row("teacher", "transformer", "greedy", 30.0, 1.0), row("ctc", "nat", "ctc-greedy", 28.0, 0.3)]
    away = [row("teacher", "transformer", "greedy", 60.0, 0.1)]
    boards = [
        board_rows(here),
        board_rows(away, name="back", source="en", target="de"),
        board_rows(away, name="news", splits=["test"], provenance={"corpus": {"sha256": {"test.en": "ab" * 32}}}),
    ]
    entries = leaderboard_tables.entries(leaderboard.merge(boards))
    page = "<!-- leaderboard: needs corpus -->\n<!-- /leaderboard -->\n"
    filled = leaderboard_tables.fill(page, entries, "page")
    assert "60.0" not in filled and "30.0" in filled and "left out: 2." in filled


def test_a_table_of_a_corpus_has_one_way_to_count_whatever_the_release_of_sacrebleu():
    """A row counted by characters, and two counted by words in different releases."""

    def counted(name: str, bleu: float, signature: str, chrf: str = "nc:6"):
        rows = [row("ctc", "nat", "ctc-greedy", bleu)]
        return board_rows(rows, name=name, target="ja", signatures={"test": {BLEU: signature, CHRF: chrf}})

    boards = [
        counted("characters", 60.0, "nrefs:1|tok:char|version:2.6.0"),
        counted("words", 28.0, "nrefs:1|tok:ja-mecab|version:2.6.0"),
        # Tables have no chrF.
        counted("earlier", 31.0, "nrefs:1|tok:ja-mecab|version:2.5.1", chrf="nc:2"),
    ]
    page = "<!-- leaderboard: rows corpus -->\n<!-- /leaderboard -->\n"
    filled = leaderboard_tables.fill(page, leaderboard_tables.entries(leaderboard.merge(boards)), "page")
    assert "31.0" in filled and "60.0" not in filled and "left out: 1." in filled


def test_means_say_over_how_many_seeds_they_are_and_no_seeds_settings_stand_for_all():
    """Seed 3 lacks the beam; seeds chose different lengths and weights on dev."""
    rows = [row("ctc", "nat", "ctc-greedy", 41.0 + seed, 0.3, seed=seed) for seed in (1, 2, 3)]
    tuned = {"beam": 20, "language_model": "lm", "beam_threshold": 3.0}
    rows += [
        row("ctc", "nat", "ctc-beam", 45.0 + seed, 0.4, seed=seed, lm_weight=weight, **tuned)
        for seed, weight in ((1, 0.3), (2, 0.4))
    ]
    search = {"steps": 1, "samples": 5, "refinement": "delta", "mean_first": True}
    rows += [
        row("lvm", "lvm", "latent-search", 30.0, 9.0, "subwords", seed=seed, lengths=lengths, **search)
        for seed, lengths in ((1, 3), (2, 5), (3, 5))
    ]
    greedy, beam, latent = leaderboard_tables.entries(board_rows(rows))
    text = markdown.table(leaderboard_tables.experiment_table([greedy, beam, latent]), compact=True)
    assert "| 43.0 ± 1.0 |" in text and "| 46.5 ± 0.7 (2 of 3 seeds) |" in text
    assert "0.3" not in beam.changed and "lm weight" in beam.changed
    assert "… × 5" in latent.label and "3 × 5" not in latent.label


def test_pages_get_fresh_tables_between_their_marks(tmp_path, capsys):
    for name in ("one/report", "two"):
        (tmp_path / name).mkdir(parents=True)
    content([row("a", "transformer", "greedy", 45.0, 1.0)]).write(tmp_path / "one/report")
    page, board = tmp_path / "page.md", tmp_path / "board.csv"
    text = "before\n<!-- leaderboard: {} -->\nold\n<!-- /leaderboard -->\nafter\n"
    page.write_text(text.format("rows corpus"))
    main(["leaderboard", str(tmp_path / "one"), "--output", str(board), "--pages", str(page)])
    assert capsys.readouterr().out == f"{board}: 1 rows of 1 experiments\n"
    filled = page.read_text()
    assert filled.startswith("before\n") and filled.endswith("<!-- /leaderboard -->\nafter\n") and "old" not in filled
    assert (
        "| a (transformer) | raw | greedy | one | `--bundle bundles/a/seed-1 --search greedy` | 45.0 | 1.00 |" in filled
    )
    # An existing CSV file is extended.
    content([row("b", "transformer", "greedy", 46.0, 1.0)], name="two").write(tmp_path / "two")
    main(["leaderboard", str(board), str(tmp_path / "two"), "--output", str(board)])
    assert [board_row["system"] for board_row in csv.DictReader(io.StringIO(board.read_text()))] == ["a", "b"]
    capsys.readouterr()
    refused = {
        "rows nothing": "no rows of the corpus nothing",
        "experiment three": "no rows of the experiment three",
        "cells corpus": "allowed: rows, needs, experiment",
        "rows corpus without one two": "no rows of the corpus",
        "rows corpus -->\n<!-- leaderboard: rows corpus": "a mark without its pair",
    }
    for marks, words in refused.items():
        page.write_text(text.format(marks))
        board_content = board.read_bytes()
        with pytest.raises(SystemExit, match=words):
            main(["leaderboard", str(tmp_path / "one"), "--output", str(board), "--pages", str(page)])
        assert board.read_bytes() == board_content and page.read_text() == text.format(marks)


def test_a_command_leaves_nothing_to_the_defaults_of_its_bundle():
    """Bundles may carry another language model than the row's, or none; their defaults are what dev chose for another
    row."""
    rows = [
        row("teacher", "transformer", "verified", 48.0, drafter="ctc", language_model="lm", lm_weight=0.4),
        row("teacher", "transformer", "beam", 47.0, beam=4, language_model="lm", lm_weight=0.4),
        row("teacher", "transformer", "beam", 46.0, beam=4),
        row("ctc", "nat", "ctc-beam", 45.0, beam=5, language_model="lm"),
        row("ctc", "nat", "ctc-beam", 44.0, beam=5),
        row("ctc", "nat", "ctc-beam", 43.5, beam=20, word_bonus=3.0),
        row("dat", "dat", "graph-beam", 43.2, removed="subwords", beam=5),
        row("dat", "dat", "graph-viterbi", 43.0, removed="subwords"),
        row("dat", "dat", "graph-viterbi", 42.0, removed="subwords", length_penalty=1.5),
        row("teacher", "transformer", "verified", 41.0, drafter="ctc", drafts=5, block=16),
    ]
    entries = leaderboard_tables.entries(board_rows(rows))
    assert len(entries) == len(rows)
    for entry, best in itertools.product(entries, entries):
        if (entry.row["system"], entry.row["search"]) != (best.row["system"], best.row["search"]):
            continue
        words = shlex.split(leaderboard_tables.command(entry, entries))
        written = dict(zip(words[::2], words[1::2], strict=True))
        given = best.settings.model_dump()
        given |= {name: "other" for name in ("drafter", "language_model") if name in given}
        for name in given:
            if text := written.get(options.option(name)):
                given[name] = text.removeprefix("bundles/").removesuffix("/seed-1")
        read, values = type(entry.settings)(**given).model_dump(), entry.settings.model_dump()
        with_effect = [name for name in values if entry.settings.has_effect(name, values)]
        assert [read[name] for name in with_effect] == [values[name] for name in with_effect]


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("eager", ""),
        ("cuda_graphs-float32", "--device cuda --precision float32 --engine fast"),
        ("cuda_graphs-bfloat16", "--device cuda --precision bfloat16 --engine fast"),
        ("onnxruntime-int8", "--device cpu --engine fast-int8"),
        ("ctranslate2-int8", "--device cpu --precision int8"),
    ],
)
def test_a_command_computes_as_its_row_did(engine, options):
    (entry,) = leaderboard_tables.entries(board_rows([row("a", "transformer", "greedy", 45.0) | {"engine": engine}]))
    assert leaderboard_tables.command(entry, [entry]).endswith(f"--search greedy {options}".rstrip())


def test_settings_of_any_kind_come_back_from_their_cell(tmp_path):
    """Among them null in place of a default, numbers with many digits, and names that YAML takes for something else."""
    settings = {"beam": 20, "beam_threshold": None, "lm_weight": 0.1234567, "language_model": "on", "rescorer": "2024"}
    rows = board_rows([row("a", "nat", "ctc-beam", 45.0, seed=seed, **settings) for seed in (1, 2)])
    path = tmp_path / "board.csv"
    path.write_text(leaderboard.csv_text(rows))
    (entry,) = leaderboard_tables.entries(leaderboard.read(path))
    assert entry.seeds == 2 and settings.items() <= entry.settings.model_dump().items()
    for problem in ("a b", '["beam"]'):
        path.write_text(leaderboard.csv_text([rows[0], rows[1] | {"settings": problem}]))
        with pytest.raises(ArtifactError, match=r"line 3, has .* as settings"):
            leaderboard.read(path)


def test_other_files_are_refused_in_a_sentence(tmp_path):
    wrong = tmp_path / "wrong.csv"
    board = leaderboard.csv_text(board_rows([row("a", "transformer", "greedy", 45.0)]))
    for text in ("", "experiment,bleu\na,1\n"):
        wrong.write_text(text)
        with pytest.raises(ArtifactError, match="other columns"):
            leaderboard.read(wrong)
    # The column of dev may be missing.
    wrong.write_text(board.replace("commit", "revision"))
    with pytest.raises(ArtifactError, match=r"\(commit, revision\)"):
        leaderboard.read(wrong)


@pytest.mark.parametrize("column, cell", [("settings", "beam"), ("bleu", "high"), ("latency_ms", "fast")])
def test_a_wrong_cell_is_named_by_its_line_in_the_file(tmp_path, column, cell):
    """After a blank line, and a cell of two lines."""
    first, second = board_rows([row("a", "transformer", "greedy", 45.0), row("b", "transformer", "greedy", 46.0)])
    path = tmp_path / "board.csv"
    text = leaderboard.csv_text([first | {"hardware": "CPU\n4 cores"}, second | {column: cell}])
    path.write_text(text.replace("\n", "\n\n", 1))
    with pytest.raises(ArtifactError, match=rf"line 5, .*{cell}"):
        leaderboard.read(path)


@pytest.fixture(scope="module")
def entries():
    return leaderboard_tables.entries(leaderboard.read(BOARD))


def test_the_first_pages_have_tables_of_the_csv_file():
    assert {PROJECT / "README.md", PROJECT / "docs/results/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_tables_of_the_documentation_are_those_of_the_csv_file(page, entries):
    """After a change: make leaderboard."""
    text = page.read_text(encoding="utf-8")
    assert leaderboard_tables.fill(text, entries, page.name) == text


def test_every_shipped_row_is_whole_and_its_settings_are_those_of_its_search(entries):
    rows = leaderboard.read(BOARD)
    assert len(rows) > 700 and leaderboard.csv_text(leaderboard.merge([rows])) == BOARD.read_text(encoding="utf-8")
    always = (
        "corpus",
        "test_set",
        "system",
        "family",
        "data",
        "search",
        "seed",
        "bleu",
        "parameters",
        "updates",
        "hardware",
    )
    assert all(row[name] for row in rows for name in always)
    assert all(float(row["bleu_low"]) <= float(row["bleu"]) <= float(row["bleu_high"]) for row in rows)
    assert all(re.fullmatch("[0-9a-f]{40}", row["commit"]) for row in rows)
    assert all(entry.settings is not None for entry in entries)
    # Commands of tables name existing bundles, or bundles whose making config/experiments/README.md describes.
    variants = (PROJECT / "config/experiments/README.md").read_text(encoding="utf-8")
    names = {*experiment_names(), *re.findall(r"experiment(?:=|: )(\S+)", variants)}
    assert {row["experiment"] for row in rows} <= names
