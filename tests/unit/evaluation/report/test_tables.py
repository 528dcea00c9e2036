"""The main table: grouping, order, means over seeds, published figures."""

import csv
import io
import statistics

import pytest

from workflow_src.evaluation.report import tables

SYSTEMS = {
    "teacher": {"family": "transformer", "preset": "tiny", "data": "raw", "base": None},
    "lvm": {"family": "lvm", "preset": "tiny", "data": "distilled-by-teacher", "base": None},
    "score": {"family": "score", "preset": "tiny", "data": "distilled-by-teacher", "base": "lvm"},
    "lvm-raw": {"family": "lvm", "preset": "tiny", "data": "raw", "base": None},
}


def _manifest(convention="sacrebleu", **expected):
    return {"systems": SYSTEMS, "report": {"expected": expected, "expected_convention": convention}}


def _row(system, name, search, bleu, steps=None, beam=None, seed=1, removed="none", **more):
    row = {
        "system": system,
        "name": name,
        "family": SYSTEMS[system]["family"],
        "search": search,
        "steps": steps,
        "beam": beam,
        "seed": seed,
        "repetitions_removed": removed,
        "bleu": bleu,
        "bleu_ci": [bleu - 1, bleu + 1],
        "chrf": bleu + 20,
        "validity": None,
        "latency_ms": None,
        "latency_std": None,
        "sentences_per_second": None,
        "speedup": None,
    }
    return row | more


ROWS = [
    _row("score", "score-4", "score", 34.0, steps=4),
    _row("lvm-raw", "prior-mean", "prior-mean", 29.0, steps=0),
    _row("lvm", "prior-mean", "prior-mean", 33.0, steps=0),
    _row("lvm", "prior-mean", "prior-mean", 33.5, steps=0, removed="subwords"),
    _row("score", "score-1", "score", 33.7, steps=1),
    _row("lvm", "delta-1", "delta", 33.4, steps=1),
    _row("teacher", "beam-4", "beam", 41.0, beam=4),
]


def test_groups_and_their_order():
    found = tables.groups(ROWS, _manifest(), removed="none")
    assert [(group.key, [line.label for line in group.lines]) for group in found] == [
        ("teacher", ["beam 4"]),
        ("lvm", ["prior mean", "delta, L = 1", "score, L = 1", "score, L = 4"]),
        ("lvm-raw", ["prior mean"]),
    ]
    removed = tables.groups(ROWS, _manifest(), removed="subwords")
    assert [(line.label, line.figures["bleu"]) for group in removed for line in group.lines] == [
        ("beam 4", 41.0),
        ("prior mean", 33.5),
    ]


def test_several_seeds_give_mean_and_deviation():
    bleus = [30.0, 31.0, 33.5]
    rows = [_row("lvm", "delta-1", "delta", bleu, steps=1, seed=seed) for seed, bleu in enumerate(bleus)]
    (line,) = tables.groups(rows, _manifest(), removed="none")[0].lines
    assert line.figures["bleu"] == pytest.approx(statistics.mean(bleus)) and line.seeds == 3
    assert line.interval is None
    assert tables.cell(line, "bleu") == ("31.5", f"± {statistics.stdev(bleus):.1f}")


def test_published_figures_stand_by_name_in_the_first_group_or_by_system():
    manifest = _manifest(**{"score-4": 29.1, "prior-mean": 27.0, "lvm-raw/prior-mean": 20.0, "latent-search": 30.2})
    rows = sorted(ROWS, key=lambda row: row["system"] == "lvm-raw")
    table = tables.groups(rows, manifest, removed="none")
    found = {(line.system, line.name): line.expected for group in table for line in group.lines}
    assert found[("score", "score-4")] == 29.1 and found[("lvm", "prior-mean")] == 27.0
    assert found[("lvm-raw", "prior-mean")] == 20.0 and found[("lvm", "delta-1")] is None
    assert tables.unmatched_expected(table, manifest["report"]["expected"]) == {"latent-search": 30.2}


def test_columns_without_figures_are_left_out():
    table = tables.groups(ROWS, _manifest(), removed="none")
    assert [key for key, _ in tables.columns(table)] == ["bleu", "chrf"]
    timed = [row | {"latency_ms": 2.0, "latency_std": 0.5, "validity": 0.5} for row in ROWS]
    # Measured before rounds were kept by themselves: no such column, and no figure made up.
    table = tables.groups(timed, _manifest(), removed="none")
    assert "latency_rounds" not in dict(tables.columns(table))
    timed = [row | {"latency_rounds": [2.04, 1.9, 2.061]} for row in timed]
    table = tables.groups(timed, _manifest(**{"score-4": 29.1}), removed="none")
    assert [key for key, _ in tables.columns(table)] == [
        "bleu", "expected", "chrf", "validity", "latency_ms", "latency_rounds", "against_fastest",
    ]  # fmt: skip
    assert tables.cell(table[0].lines[0], "latency_ms") == ("2.00", "± 0.50")
    assert tables.cell(table[0].lines[0], "latency_rounds") == ("1.90–2.06", "")
    assert tables.span([3.001, 3.0]) == "3.00" and tables.span([99.5, 120.2]) == "99.5–120"
    assert next(csv.DictReader(io.StringIO(tables.csv_text(timed))))["latency_rounds"] == "2.04 1.9 2.061"
    assert tables.cell(table[0].lines[0], "validity") == ("50.0", "")
    assert tables.cell(table[0].lines[0], "expected") == ("–", "")


def test_ours_stands_beside_what_was_published_in_the_same_convention():
    counts = {"bleu_tokenised": 1.0, "bleu_intl_lowercase": 3.0}
    rows = [
        row | {"seed": seed} | {key: row["bleu"] + more + seed for key, more in counts.items()}
        for row in ROWS
        for seed in (1, 2)
    ]
    for convention, head, wanted in (
        ("tokenised", "published (tokenised)", "36.5"),
        ("intl-lowercase", "published (international, lowercase)", "38.5"),
    ):
        table = tables.groups(rows, _manifest(convention, **{"score-4": 29.1}), removed="none")
        heads = dict(tables.columns(table, convention))
        assert heads["expected"] == head and heads["bleu_as_published"] == "ours, same convention"
        cells = {line.name: tables.cell(line, "bleu_as_published")[0] for line in table[1].lines}
        assert cells == {"score-4": wanted, "score-1": "–", "delta-1": "–", "prior-mean": "–"}
    # sacreBLEU is what stands there anyway.
    table = tables.groups(rows, _manifest(**{"score-4": 29.1}), removed="none")
    assert dict(tables.columns(table))["expected"] == "published (sacreBLEU)"
    assert "bleu_as_published" not in dict(tables.columns(table))


def test_what_removing_repetitions_is_worth():
    rows = [_row("teacher", "beam-4", "beam", 41.0, beam=4)]
    for seed in (1, 2):
        for removal, gain in (("subwords", 3.0), ("none", 0.0), ("words", 1.0)):
            rows.append(_row("score", "score-1", "score", 30 + gain + seed, steps=1, removed=removal, seed=seed))
            rows.append(_row("lvm", "prior-mean", "prior-mean", 20 + gain, steps=0, removed=removal, seed=1))
    [(title, lines)] = tables.removals(rows[:4] + rows[5:], _manifest())
    assert title == "Latent-variable model “lvm”, tiny, distilled data"
    assert lines[1] == ["score, L = 1", "31.5 ± 0.7", "32.5 ± 0.7", "34.5 ± 0.7"]
    assert tables.removals(rows[:1], _manifest()) == []


def test_names_that_differ_from_the_settings_are_shown():
    row = _row("lvm", "delta-1-size0.5", "delta", 33.0, steps=1)
    assert tables.row_label(row, _manifest()) == "delta, L = 1 (delta-1-size0.5)"


def test_markdown_has_as_many_cells_in_every_line():
    text = tables.markdown(tables.groups(ROWS, _manifest(), removed="none"))
    assert len({line.count("|") for line in text.splitlines()}) == 1
    assert "| score, L = 4 | 34.0 [33.0, 35.0] | 54.0 |" in text


def test_csv_reads_back():
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(ROWS))))
    assert len(rows) == len(ROWS)
    assert rows[0]["system"] == "score" and float(rows[0]["bleu_low"]) == 33.0 and rows[0]["validity"] == ""


def _timed(name, bleu, ms, engine="continuum", **more):
    return _row("teacher", name, "beam", bleu, beam=4, latency_ms=ms, engine=engine, **more)


def test_engines_are_named_and_the_fastest_as_good_is_compared_with():
    rows = [
        _timed("beam-4", 41.0, 10.0),
        _timed("beam-4-ctranslate2-int8", 40.0, 2.0, "ctranslate2-int8"),
        _timed("mine", 30.0, 1.0, "ctranslate2-float32"),
        _row("lvm", "prior-mean", "prior-mean", 33.0, steps=0, latency_ms=0.5, removed="subwords"),
        _row("score", "score-4", "score", 40.5, steps=4, latency_ms=4.0, removed="subwords"),
        _row("score", "score-1", "score", 50.0, steps=1, latency_ms=1.0, removed="subwords"),
    ]
    found = tables.groups(rows, _manifest(), removed="subwords")
    lines = {line.name: line for group in found for line in group.lines}
    assert lines["beam-4-ctranslate2-int8"].label == "beam 4, CTranslate2 int8"
    assert lines["mine"].label == "beam 4, CTranslate2 float32 (mine)"
    assert lines["mine"].engine == "ctranslate2-float32"
    compared = {name: line.figures["against_fastest"] for name, line in lines.items()}
    assert compared == {
        "beam-4": 1.0,
        "beam-4-ctranslate2-int8": 1.0,
        # Nothing is slower than a faster line that is at least as good.
        "mine": 1.0,
        # The int8 row is the fastest that is as good; the row of 30 BLEU is faster, but worse.
        "prior-mean": 4.0,
        "score-4": 2.5,
        "score-1": None,
    }
    assert lines["prior-mean"].rival == "teacher, beam 4, CTranslate2 int8" and lines["score-1"].rival == ""
    assert ("against_fastest", "over fastest as good") in tables.columns(found)
    assert tables.cell(lines["score-1"], "against_fastest") == ("–", "")
    assert tables.cell(lines["prior-mean"], "against_fastest") == ("4.00×", "")


def test_what_dev_chose_stands_in_a_rows_label():
    row = {"system": "score", "name": "score-1-tuned", "search": "score", "steps": 1}
    entries = [
        {"system": "score", "name": "score-1-tuned", "picked": {"length_quantile": value}} for value in (0.6, 0.6)
    ]
    manifest = {"systems": {"score": {"family": "score"}}, "rows": entries}
    assert tables.row_label(row, manifest) == "score, L = 1 (chosen: length quantile 0.6)"
    # Seeds that chose different values share a row, which then tells the setting only.
    entries[1]["picked"] = {"length_quantile": 0.7}
    assert tables.row_label(row, manifest) == "score, L = 1 (chosen: length quantile)"


def test_a_search_whose_candidates_dev_chose_is_told_from_the_plain_one():
    settings = {"refinement": "score", "steps": 1, "lengths": 5, "samples": 5, "rescorer": "teacher"}
    entries = [
        {"system": "score", "name": "plain", "settings": settings},
        {"system": "score", "name": "tuned", "settings": settings, "picked": {"lengths": 3, "samples": 9}},
        {"system": "score", "name": "tuned", "settings": settings, "picked": {"lengths": 3, "samples": 9}},
    ]
    manifest = {"systems": {"score": {"family": "score"}}, "rows": entries}
    row = {"system": "score", "search": "latent-search", "steps": 1}
    assert tables.row_label(row | {"name": "plain"}, manifest) == "score, search 5 × 5, L = 1"
    tuned = "score, search 3 × 9, L = 1 (chosen: lengths 3, samples 9)"
    assert tables.row_label(row | {"name": "tuned"}, manifest) == tuned
    entries[2]["picked"] = {"lengths": 5, "samples": 5}
    assert tables.row_label(row | {"name": "tuned"}, manifest) == "score, search, L = 1 (chosen: lengths, samples)"
