from __future__ import annotations

import statistics

import pytest
import reports
from refusals import refuses
from reports import squeezed
from titles import BEAM_4, BLEU, CTRANSLATE2, DELTA, SCORE_1, SCORE_4, TER, VALID

from workflow_src.cli import main
from workflow_src.errors import InputError
from workflow_src.evaluation.document import GroupRow
from workflow_src.evaluation.report.captions import removal_words
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.comparison import compare, read
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.registry import searches
from workflow_src.spec import parse

GAP = f"{BLEU} below the reference row"


def row(system, family, search, seed, bleu, removed="none", name="", settings=None, **fields):
    """A row and its figures; `steps` and `beam` are settings of its search."""
    changed = {setting: fields.pop(setting) for setting in ("steps", "beam") if setting in fields}
    settings = settings or all_settings(search, **changed)
    declared = searches()[search]
    name = name or (f"{search}-{changed['beam']}" if "beam" in changed else search)
    of_row = reports.row("lvm", name, bleu, seed, removed, settings=settings, bleu_ci=None)
    of_row |= {"label": declared.row_label(parse(declared.settings, settings)), "search": search, "chrf": 50.0}
    of_row |= {"system": system, "family": family, "autoregressive": family == "transformer"}
    return of_row | {"data": "raw" if system == "teacher" else "distilled"} | fields


def cells(experiments, removed=None):
    """Cells as text by heading, system and data, and label."""
    by_heading = {}
    for section in compare(experiments, removed).sections:
        (table,) = section.blocks
        group, lines = "", by_heading.setdefault(section.title, {})
        for line in table.rows:
            if isinstance(line, GroupRow):
                group = line.title
            else:
                lines[group, line[0]] = list(line[1:])
    return by_heading


def all_settings(search, **changed):
    """All settings of a search, as in a row."""
    return searches()[search].settings(**changed).model_dump(mode="json")


def results(name, rows, **record):
    return reports.results(rows, experiment=name, dataset=f"{name} corpus", **record)


def written(folder, content):
    folder.mkdir(parents=True)
    content.write(folder)
    return str(folder)


SEARCHED = all_settings("latent-search", lengths=3, samples=5, steps=2, refinement="delta")
WITH_MODEL = all_settings("beam", beam=4, language_model="lm")
FIRST_ROWS = (
    [row("teacher", "transformer", "beam", seed, 40.0 + seed, beam=4) for seed in (1, 2, 3)]
    + [row("teacher", "transformer", "beam", seed, 39.0, beam=2) for seed in (1, 2, 3)]
    + [row("score", "score", "score", seed, 30.0 + 2 * seed, "subwords", steps=1) for seed in (1, 2, 3)]
    + [row("score", "score", "score", 1, 5.0, "none", steps=1)]
)
SECOND_ROWS = [
    row("teacher", "transformer", "beam", 1, 60.0, settings=WITH_MODEL, name="with-model"),
    row("teacher", "transformer", "beam", 1, 50.0, beam=4, validity=0.95, latency_ms=10.0, speedup=1.0),
    row("score", "score", "score", 1, 45.0, "subwords", steps=1, validity=0.5, latency_ms=2.5, speedup=4.0),
    row(
        "score",
        "score",
        "latent-search",
        1,
        50.0,
        "subwords",
        settings=SEARCHED,
    ),
]
FIRST, SECOND = results("one", FIRST_ROWS), results("two", SECOND_ROWS)
SCORE = "“score”, distilled data"


def test_cells_are_means_and_deviations_over_seeds():
    compared = cells([FIRST, SECOND])
    spread = statistics.stdev([32.0, 34.0, 36.0])
    assert compared[BLEU][SCORE, SCORE_1] == [f"34.0 ± {spread:.1f}", "45.0"]
    # The gap is taken seed by seed, to beam 4 and not to beam 2, nor to a beam with a language model.
    gaps = [41.0 - 32.0, 42.0 - 34.0, 43.0 - 36.0]
    assert compared[GAP][SCORE, SCORE_1] == [f"{statistics.fmean(gaps):.1f} ± {statistics.stdev(gaps):.1f}", "5.0"]
    assert compared[f"{VALID}, %"][SCORE, SCORE_1] == ["–", "50.0"]
    assert compared[BLEU][SCORE, f"{DELTA}, search 3 × 5, L = 2"] == ["–", "50.0"]
    assert compared["speed-up over the reference row"][SCORE, SCORE_1] == ["–", "4.00"]


def test_every_test_set_is_a_column():
    untimed = {"latency_ms": None, "speedup": None, "split": "news"}
    news = [row | untimed | {"bleu": row["bleu"] - 5} for row in SECOND_ROWS]
    second = results("two", [*SECOND_ROWS, *news], splits=["test", "news"])
    assert compare([FIRST, second]).title == "one, two, test, two, news"
    compared = cells([FIRST, second])
    assert compared[BLEU][SCORE, SCORE_1] == ["34.0 ± 2.0", "45.0", "40.0"]
    # The gap is to the teacher on the same set.
    assert compared[GAP][SCORE, SCORE_1][1:] == ["5.0", "5.0"]


def test_decodes_with_equal_labels_meet_by_their_settings_whatever_their_order():
    """Two experiments have the same beams, one of them narrow, in opposite orders."""

    def beams(name: str, *thresholds: float):
        settings = {threshold: all_settings("ctc-beam", beam=20, beam_threshold=threshold) for threshold in thresholds}
        rows = [
            row(
                "ctc",
                "nat",
                "ctc-beam",
                1,
                30.0 + threshold,
                "subwords",
                settings=settings[threshold],
                name=f"{threshold}",
            )
            for threshold in thresholds
        ]
        return results(name, rows)

    compared = cells([beams("one", 2.0, 5.0), beams("two", 5.0, 2.0)])[BLEU]
    assert sorted(compared.values()) == [["32.0", "32.0"], ["35.0", "35.0"]]


def test_seeds_that_chose_different_values_are_one_row():
    rows = [
        row("score", "score", "score", seed, 30.0, "subwords", steps=steps, name="tuned", chosen='{"steps": 1}')
        for seed, steps in ((1, 1), (2, 4))
    ]
    assert cells([results("one", rows)])[BLEU] == {(SCORE, "score, L = … (chosen: steps)"): ["30.0 ± 0.0"]}


def test_rows_that_differ_in_engine_or_chosen_settings_stay_apart_and_decide_no_gap():
    rows = [
        row("teacher", "transformer", "beam", 1, 40.0, beam=4),
        row("teacher", "transformer", "beam", 1, 41.0, beam=4, name="beam-4-int8", engine="ctranslate2-int8"),
        row("teacher", "transformer", "beam", 1, 42.0, beam=4, name="beam-4-tuned", chosen='{"length_penalty": 1.2}'),
        row("score", "score", "score", 1, 30.0, "subwords", steps=1, name="score-1"),
        row("score", "score", "score", 1, 31.0, "subwords", steps=1, name="score-1-half"),
        row(
            "score",
            "score",
            "score",
            1,
            32.0,
            "subwords",
            steps=1,
            name="score-1-tuned",
            chosen='{"length_quantile": 0.6}',
        ),
    ]
    compared = cells([results("one", rows)])
    assert {label: texts[0] for (_, label), texts in compared[BLEU].items()} == {
        BEAM_4: "40.0",
        f"{BEAM_4}, {CTRANSLATE2} int8": "41.0",
        f"{BEAM_4} (chosen: length penalty)": "42.0",
        SCORE_1: "30.0",
        f"{SCORE_1} (score-1-half)": "31.0",
        f"{SCORE_1} (chosen: length quantile)": "32.0",
    }
    assert compared[GAP][SCORE, SCORE_1] == ["10.0"]


def test_kept_repetitions_are_another_comparison():
    assert cells([FIRST], removed="none")[BLEU][SCORE, SCORE_1] == ["5.0 (1 of 3 seeds)"]


def test_results_without_what_is_compared_are_named(tmp_path):
    rows = [row("score", "score", "score", 1, 30.0, "words"), row("score", "score", "score", 1, 29.0, "none")]
    words_only = results("words-only", rows)
    teacher = results("alone", [row("teacher", "transformer", "beam", 1, 40.0, beam=4)])
    experiments = [FIRST, teacher, words_only]
    with refuses(InputError, subject="the results of words-only", mentions=("subwords", "none, words")):
        compare(experiments)
    assert cells(experiments[1:], "words")[BLEU][SCORE, SCORE_4] == ["–", "30.0"]
    words = [written(tmp_path / name, content) for name, content in (("alone", teacher), ("words", words_only))]
    words += ["--output", str(tmp_path / "all.html")]
    main(["compare", *words, "--remove-repetitions", "words"])
    assert removal_words("words") in (tmp_path / "all.md").read_text()


def test_experiments_that_are_called_the_same_are_told_apart_by_their_folders(tmp_path):
    before, after = (written(tmp_path / name, FIRST) for name in ("before", "after"))
    other = written(tmp_path / "other", SECOND)
    main(["compare", before, after, other, "--output", str(tmp_path / "all.html")])
    title = (tmp_path / "all.md").read_text().splitlines()[0]
    assert title == f"# one ({before}), one ({after}), two"


def test_an_experiment_that_is_named_twice_is_refused(tmp_path):
    folder = written(tmp_path / "one/report", FIRST)
    with refuses(setting="experiments", value=str(folder)):
        read([str(tmp_path / "one"), str(folder)])


@pytest.mark.parametrize(("output", "other"), [("p.html", "p.md"), ("p.md", "p.html"), ("p", "p.md")])
def test_a_file_of_the_users_beside_the_page_is_not_overwritten(output, other, tmp_path):
    words = ["compare", written(tmp_path / "one", FIRST), "--output", str(tmp_path / output)]
    (tmp_path / other).write_text("mine")
    with pytest.raises(SystemExit, match=f"error: .*{other} "):
        main(words)
    assert (tmp_path / other).read_text() == "mine" and len(list(tmp_path.iterdir())) == 2
    (tmp_path / other).unlink()
    for _ in range(2):
        main(words)
    assert {path.name for path in tmp_path.iterdir()} == {"one", "p.html", "p.md"}


def test_a_comparison_says_each_way_in_which_its_columns_count_a_metric_once():
    """Japanese by words and by characters, TER with and without case; two releases of sacreBLEU."""

    def caption(*signed: tuple[str, str]) -> str:
        experiments = [
            results(
                f"experiment-{number}",
                [row("teacher", "transformer", "beam", 1, 30.0, beam=4, ter=50.0)],
                metrics=["bleu", "ter"],
                signatures={"test": {BLEU: bleu, TER: ter}},
            )
            for number, (bleu, ter) in enumerate(signed, 1)
        ]
        (paragraph, _) = compare(experiments).summary
        return "".join(paragraph.parts)

    words = ("tok:ja-mecab|version:2.6.0", "case:mixed|version:2.6.0")
    differing = caption(words, ("tok:char|version:2.6.0", "case:lc|version:2.6.0"))
    assert all(differing.count(way) == 1 for way in ("tok:ja-mecab", "tok:char", "case:mixed", "case:lc"))
    alike = caption(words, ("tok:ja-mecab|version:2.5.1", "case:mixed|version:2.5.1"))
    assert alike.count("tok:ja-mecab") == alike.count("case:mixed") == 1


def test_figures_that_nobody_has_make_no_table():
    assert f"{VALID}, %" not in cells([FIRST])
    text = squeezed(markdown(compare([FIRST, SECOND], "subwords")))
    assert f"| {SCORE_1} | 34.0 ± 2.0 | 45.0 |" in text and "**“score”, distilled data**" in text
    assert f"{VALID}, %" in text and "one on one corpus, two on two corpus" in text


def test_data_seeds_and_training_of_every_experiment_are_reported():
    trained = {"parameters": 9, "target_tokens": 7, "minutes": 1.5, "trained_on": "distilled-by-teacher"}
    rows = [row | trained | {"updates": 200} if row["system"] == "score" else row for row in FIRST_ROWS]
    rows.append(row("energy", "energy", "energy", 1, 30.0, "words", steps=1) | trained | {"updates": 100})
    provenance = {"corpus": {"sha256": {"train.de": "ab" * 32}}}
    text = squeezed(markdown(compare([results("one", rows, provenance=provenance), SECOND], "subwords")))
    digest = checksum({"train.de": "ab" * 32})
    assert f"one: one corpus, SHA-256 {digest[:12]}…; seeds 1, 2, 3. Reference row: teacher beam-4. Networks " in text
    assert "score 200 updates, 7 target tokens; energy 100 updates, 7 target tokens." in text
    assert "two: two corpus, checksum unknown; seed 1." in text
    assert "| one | score | score | tiny | distilled-by-teacher | 1, 2, 3 | 9 | 200 | 7 | 1.5 |" in text


@pytest.mark.parametrize(
    ("output", "pages"),
    [
        ("rate-0.5", {"rate-0.5.html", "rate-0.5.md"}),
        ("rate-0.7.html", {"rate-0.7.html", "rate-0.7.md"}),
        ("notes.md", {"notes.html", "notes.md"}),
    ],
)
def test_a_version_in_the_name_of_a_page_is_kept(output, pages, tmp_path, capsys):
    main(["compare", written(tmp_path / "one", FIRST), "--output", str(tmp_path / "pages" / output)])
    assert {path.name for path in (tmp_path / "pages").iterdir()} == pages
    said = capsys.readouterr().out
    assert all(name in said for name in pages)


def test_a_page_of_another_kind_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"--output is .*x\.txt.*\.html"):
        main(["compare", written(tmp_path / "one", FIRST), "--output", str(tmp_path / "x.txt")])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("named", ["one", "results/one", "results/one/report", "results/one/report/provenance.json"])
def test_an_experiment_is_named_by_itself_its_folder_or_its_file(command, named, tmp_path, monkeypatch, capsys):
    written(tmp_path / "results/one/report", FIRST)
    (tmp_path / "one").mkdir()  # a folder of the user's
    monkeypatch.chdir(tmp_path)
    main([command, named, "--output", "all.html"])
    assert "of 1 experiment" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("missing", ["none", "none.json"])
def test_missing_results_end_in_one_sentence(command, missing, tmp_path):
    with pytest.raises(SystemExit) as caught:
        main([command, str(tmp_path / missing), "--output", str(tmp_path / "all.html")])
    assert missing in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "all.html").exists()
