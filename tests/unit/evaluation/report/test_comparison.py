from __future__ import annotations

import statistics

import pytest
import reports
from refusals import fields_of
from reports import assert_tables_fit, squeezed
from titles import BEAM_4, BLEU, CTRANSLATE2, DELTA, SCORE_1, SCORE_4, VALID

from workflow_src.cli import main
from workflow_src.errors import InputError
from workflow_src.evaluation.report.carried import checksum
from workflow_src.evaluation.report.comparison import compare, document, figures, tables
from workflow_src.evaluation.report.conventions import removal_words
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.evaluation.report.results import validate, write_results
from workflow_src.registry import searches

GAP = figures([])[1].heading


def row(system, family, search, seed, bleu, removed="none", name="", **fields):
    """A row of results.json; `steps` and `beam` are settings of its search."""
    settings = {setting: fields.pop(setting) for setting in ("steps", "beam") if setting in fields}
    data = "raw" if system == "teacher" else "distilled"
    content = {
        "system": system,
        "family": family,
        "preset": "tiny",
        "data": data,
        "seed": seed,
        "means_repetitions": False,
    }
    name = name or (f"{search}-{settings['beam']}" if "beam" in settings else "")
    content |= {"name": name, "title": search, "search": search, "settings": settings, "engine": "eager"}
    content |= {"autoregressive": family == "transformer", "repetitions_removed": removed, "bleu": bleu, "chrf": 50.0}
    unmeasured = "candidates bleu_ci p_value validity latency_ms latency_std latency_rounds sentences_per_second"
    return dict.fromkeys([*unmeasured.split(), "speedup", "device", "threads", "batch"]) | content | fields


def all_settings(search, **changed):
    """All settings of a search, as in a row."""
    return searches()[search].settings(**changed).model_dump(mode="json")


def results(name, rows):
    return reports.results(name, f"{name} corpus", rows)


SEARCHED = all_settings("latent-search", lengths=3, samples=5, steps=2, refinement="delta")
WITH_MODEL = all_settings("beam", beam=4, language_model="lm")
FIRST = results(
    "one",
    [row("teacher", "transformer", "beam", seed, 40.0 + seed, beam=4) for seed in (1, 2, 3)]
    + [row("teacher", "transformer", "beam", seed, 39.0, beam=2) for seed in (1, 2, 3)]
    + [row("score", "score", "score", seed, 30.0 + 2 * seed, "subwords", steps=1) for seed in (1, 2, 3)]
    + [row("score", "score", "score", 1, 5.0, "none", steps=1)],
)
SECOND = results(
    "two",
    [
        row("teacher", "transformer", "beam", 1, 60.0, settings=WITH_MODEL, name="with-model"),
        row("teacher", "transformer", "beam", 1, 50.0, beam=4, validity=0.95, latency_ms=10.0, speedup=1.0),
        row("score", "score", "score", 1, 45.0, "subwords", steps=1, validity=0.5, latency_ms=2.5, speedup=4.0),
        row("score", "score", "latent-search", 1, 50.0, "subwords", settings=SEARCHED, candidates=15),
    ],
)


def test_cells_are_means_and_deviations_over_seeds():
    comparison = compare([validate(FIRST, "here"), validate(SECOND, "here")])
    key = ("score", SCORE_1, "distilled")
    first, second = comparison.cells[BLEU][key]
    assert (first.mean, first.deviation, first.seeds) == (34.0, statistics.stdev([32.0, 34.0, 36.0]), 3)
    assert (second.mean, second.deviation) == (45.0, None)
    # The gap is taken seed by seed, to beam 4 and not to beam 2.
    assert GAP == f"{BLEU} below the reference row"
    gaps = [41.0 - 32.0, 42.0 - 34.0, 43.0 - 36.0]
    assert comparison.cells[GAP][key][0].mean == pytest.approx(statistics.fmean(gaps))
    assert comparison.cells[GAP][key][0].deviation == pytest.approx(statistics.stdev(gaps))
    assert comparison.cells[f"{VALID}, %"][key][1].mean == 50.0
    first, second = comparison.cells[BLEU]["score", f"{DELTA}, search 3 × 5, L = 2", "distilled"]
    assert first is None and second.mean == 50.0
    # The gap is to the plain beam: a language model beside it is another system.
    assert comparison.cells[GAP][key][1].mean == 50.0 - 45.0


def test_every_test_set_is_a_column():
    news_rows = [row | {"bleu": row["bleu"] - 5, "latency_ms": None} for row in SECOND["rows"]]
    second = SECOND | {"further": [{"split": "news", "signatures": {}, "rows": news_rows}]}
    comparison = compare([validate(FIRST, "here"), validate(second, "here")])
    assert comparison.experiments == ("one", "two, test", "two, news") and len(comparison.about) == 2
    key = ("score", SCORE_1, "distilled")
    assert [cell.mean for cell in comparison.cells[BLEU][key]] == [34.0, 45.0, 40.0]
    # The gap is to the teacher on the same set.
    assert [cell.mean for cell in comparison.cells[GAP][key][1:]] == [5.0, 5.0]


def test_rows_that_differ_in_engine_or_chosen_settings_stay_apart_and_decide_no_gap():
    rows = [
        row("teacher", "transformer", "beam", 1, 40.0, beam=4),
        row("teacher", "transformer", "beam", 1, 41.0, beam=4, name="beam-4-int8", engine="ctranslate2-int8"),
        row("teacher", "transformer", "beam", 1, 42.0, beam=4, name="beam-4-tuned", chosen={"length_penalty": 1.2}),
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
            chosen={"length_quantile": 0.6},
        ),
    ]
    comparison = compare([validate(results("one", rows), "here")])
    bleu = {key[1]: cells[0].mean for key, cells in comparison.cells[BLEU].items()}
    assert bleu == {
        BEAM_4: 40.0,
        f"{BEAM_4}, {CTRANSLATE2} int8": 41.0,
        f"{BEAM_4} (chosen: length penalty)": 42.0,
        SCORE_1: 30.0,
        f"{SCORE_1} (score-1-half)": 31.0,
        f"{SCORE_1} (chosen: length quantile)": 32.0,
    }
    assert comparison.cells[GAP]["score", SCORE_1, "distilled"][0].mean == 10.0


def test_kept_repetitions_are_another_comparison():
    comparison = compare([validate(FIRST, "here")], removed="none")
    assert comparison.cells[BLEU]["score", SCORE_1, "distilled"][0].mean == 5.0


def test_results_without_what_is_compared_are_named(tmp_path):
    rows = [row("score", "score", "score", 1, 30.0, "words"), row("score", "score", "score", 1, 29.0, "none")]
    words_only = results("words-only", rows)
    teacher = results("alone", [row("teacher", "transformer", "beam", 1, 40.0, beam=4)])
    experiments = [validate(content, "here") for content in (FIRST, teacher, words_only)]
    with pytest.raises(InputError) as refused:
        compare(experiments)
    fields = {"subject": "the results of words-only", "mentions": ("subwords", "none, words")}
    assert fields_of(refused.value, fields) == fields
    assert compare(experiments[1:], "words").cells[BLEU]["score", SCORE_4, "distilled"][1].mean == 30.0
    for content in (teacher, words_only):
        write_results(tmp_path / f"{content['experiment']}.json", content)
    words = [str(tmp_path / "alone.json"), str(tmp_path / "words-only.json"), "--output", str(tmp_path / "all.html")]
    main(["compare", *words, "--remove-repetitions", "words"])
    assert removal_words("words") in (tmp_path / "all.md").read_text()


def test_figures_that_nobody_has_make_no_table():
    assert f"{VALID}, %" not in [heading for heading, _ in tables(compare([validate(FIRST, "here")]))]
    text = squeezed(markdown(document(compare([validate(FIRST, "here"), validate(SECOND, "here")]), "subwords")))
    assert f"| {SCORE_1} | 34.0 ± 2.0 | 45.0 |" in text and "**“score”, distilled data**" in text
    assert f"{VALID}, %" in text and "one on one corpus, two on two corpus" in text


def test_data_seeds_and_training_of_every_experiment_are_reported():
    def system(name, family, seed, updates):
        figures = {"parameters": 9, "updates": updates, "target_tokens": 7, "minutes": 1.5}
        return reports.trained(name, family, seed, **figures).model_dump()

    systems = [system("score", "score", seed, 200) for seed in (1, 2, 3)]
    systems += [system("energy", "energy", 1, 100), system("unused", "energy", 1, 50)]
    rows = [*FIRST["rows"], row("energy", "energy", "energy", 1, 30.0, "words", steps=1)]
    provenance = {"corpus": {"sha256": {"train.de": "ab" * 32}}}
    described = validate(results("one", rows) | {"provenance": provenance, "systems": systems}, "here")
    text = squeezed(markdown(document(compare([described, validate(SECOND, "here")]), "subwords")))
    digest = checksum({"train.de": "ab" * 32})
    assert f"one: one corpus, SHA-256 {digest[:12]}…; seeds 1, 2, 3. Reference row: teacher beam-4. Networks " in text
    assert "score 200 updates, 7 target tokens; energy 100 updates, 7 target tokens." in text
    assert "two: two corpus, checksum unknown; seed 1." in text
    assert "| one | score | score | tiny | distilled-by-teacher | 1, 2, 3 | 9 | 200 | 7 | 1.5 |" in text
    assert "unused" not in text


def test_the_command_writes_a_page_and_markdown(tmp_path, capsys):
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, content in zip(paths, (FIRST, SECOND), strict=True):
        write_results(path, content)
    main(["compare", *map(str, paths), "--output", str(tmp_path / "out" / "all.html")])
    assert "5 rows of 2 experiments" in capsys.readouterr().out
    page = (tmp_path / "out" / "all.html").read_text()
    assert "34.0 ± 2.0" in page and "<style>" in page and "http" not in page
    assert "34.0 ± 2.0" in (tmp_path / "out" / "all.md").read_text()


@pytest.mark.parametrize(
    ("output", "pages"),
    [
        ("rate-0.5", {"rate-0.5.html", "rate-0.5.md"}),
        ("rate-0.7.html", {"rate-0.7.html", "rate-0.7.md"}),
        ("notes.md", {"notes.html", "notes.md"}),
    ],
)
def test_a_version_in_the_name_of_a_page_is_kept(output, pages, tmp_path, capsys):
    write_results(tmp_path / "one.json", FIRST)
    main(["compare", str(tmp_path / "one.json"), "--output", str(tmp_path / "pages" / output)])
    assert {path.name for path in (tmp_path / "pages").iterdir()} == pages
    said = capsys.readouterr().out
    assert all(name in said for name in pages)


def test_a_page_of_another_kind_is_refused(tmp_path):
    write_results(tmp_path / "one.json", FIRST)
    with pytest.raises(SystemExit, match=r"--output is .*x\.txt.*\.html"):
        main(["compare", str(tmp_path / "one.json"), "--output", str(tmp_path / "x.txt")])
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


@pytest.mark.parametrize("command", ["compare", "leaderboard"])
@pytest.mark.parametrize("named", ["one", "results/one", "results/one/report", "results/one/report/results.json"])
def test_an_experiment_is_named_by_itself_its_folder_or_its_file(command, named, tmp_path, monkeypatch, capsys):
    write_results(tmp_path / "results/one/report/results.json", FIRST)
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


def test_outputs_of_alignments_are_compared_with_their_repetitions():
    refined = [
        row("ctc", "nat", "delta", 1, bleu, removed, steps=1, means_repetitions=True)
        for removed, bleu in (("none", 20.0), ("subwords", 19.0))
    ]
    greedy = [
        row("ctc", "nat", "ctc-greedy", 1, bleu, removed, means_repetitions=True)
        for removed, bleu in (("none", 18.0), ("subwords", 17.0))
    ]
    latent = [
        row("lvm", "lvm", "delta", 1, bleu, removed, steps=1) for removed, bleu in (("none", 28.0), ("subwords", 29.0))
    ]
    experiments = [validate(results("one", [*refined, *greedy, *latent]), "here")]

    def bleu_of_rows(removed=None) -> list[float]:
        compared = compare(experiments, removed)
        return [compared.cells[BLEU][key][0].mean for key in compared.rows]

    assert bleu_of_rows() == [20.0, 18.0, 29.0] and bleu_of_rows("subwords") == [19.0, 17.0, 29.0]
    assert "and nothing from outputs of systems that say what comes twice" in markdown(
        document(compare(experiments), None)
    )


def test_figures_stay_in_the_frame_whatever_rows_and_systems_are_called(tmp_path):
    """Names of rows with chosen settings are long; the figures beside them must stay visible."""
    named = {
        "chosen": {"lm_weight": 0.5, "word_bonus": 1.0, "length_penalty": 1.0},
        "name": "with-a-very-long-name" * 3,
    }
    long = results(
        "a-long-name-of-an-experiment" * 2, [*FIRST["rows"], row("ctc" * 9, "nat", "ctc-greedy", 1, 1.0, **named)]
    )
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, content in zip(paths, (long, SECOND), strict=True):
        write_results(path, content)
    main(["compare", *map(str, paths), "--output", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert_tables_fit(page)
    assert "“score”, distilled data" in page and page.count("<span>45.0</span>") == 1
