"""The last section of a report: the recommended row and its reason."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import reports
from reports import bundle_description, manifest, speed, timed
from titles import BEAM_4

from workflow_src import cli
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.evaluation.document import Command
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report import needs, page, results, usage
from workflow_src.evaluation.report.files import Choice
from workflow_src.registry import main_metric
from workflow_src.serving.translator import Translator

GREEDY, BEAM, PRIOR = ("teacher", "greedy"), ("teacher", "beam-4"), ("lvm", "prior-mean")
DECODES = {GREEDY: {"search": "greedy"}, BEAM: {"search": "beam", "beam": 4}, PRIOR: {"search": "prior-mean"}}


def report_inputs(test, dev=None, tuned=None, times=None, validity=None, unfinished=(), **report):
    """Inputs of a report with BLEU on test and dev by row, BLEU of chosen settings, milliseconds a sentence, and
    validity."""
    report_manifest = manifest(DECODES, splits=("test", "dev") if dev else ("test",), **report)
    if dev:
        rows = tuple(row for row in report_manifest.rows if row.split == "test" or row.key in dev)
        report_manifest = dataclasses.replace(report_manifest, rows=rows)
    scores = {"test": test, "dev": dev}
    qualities = {}
    for row in report_manifest.rows:
        bleu = scores[row.split][row.key]
        valid = {"validity": validity[row.key]} if validity and row.key in validity else {}
        qualities[row.quality] = Quality(
            kept={"bleu": bleu} | valid,
            without_repeated_words={"bleu": bleu + 1} | valid,
            without_repeated_subwords={"bleu": bleu + 2} | valid,
        )
    points = [
        ({"bleu": bleu + 5, "settings": {"beam": 9}}, {"bleu": bleu, "settings": {}}) for bleu in (tuned or {}).values()
    ]
    choices = [
        Choice(report_manifest.decode(*key), 1, {}, list(value)) for key, value in zip(tuned or {}, points, strict=True)
    ]
    timing = speed(*(timed(*key, value) for key, value in times.items())) if times else None
    inputs = SimpleNamespace(manifest=report_manifest, choices=choices, unfinished=unfinished)
    return inputs, usage.candidates_of(inputs, results.build(report_manifest, qualities, speed=timing))


def recommended_of(inputs, candidates):
    return usage.recommend(candidates, inputs.manifest.report.margin)


TEST = {GREEDY: 30.0, BEAM: 29.0, PRIOR: 20.0}


@pytest.mark.parametrize(
    ("facts", "key", "dev"),
    [
        # Dev decides, whatever test says.
        ({"dev": {GREEDY: 30.0, BEAM: 31.0, PRIOR: 10.0}}, BEAM, 31.0),
        # Rows without a figure on dev are not compared with those that have one.
        ({"dev": {BEAM: 25.0}}, BEAM, 25.0),
        # BLEU of chosen settings counts like that of a decode on dev.
        ({"dev": {GREEDY: 30.0}, "tuned": {BEAM: 30.5}}, BEAM, 30.5),
        # Scored without the repetitions that the tables remove: 29.5 + 2.
        ({"dev": {GREEDY: 30.0, BEAM: 31.0, PRIOR: 29.5}}, PRIOR, 31.5),
        # Of rows within the margin the fastest; untimed rows come last.
        ({"dev": {GREEDY: 29.6, BEAM: 30.0}, "times": {GREEDY: 2.4, BEAM: 14.1}}, GREEDY, 29.6),
        ({"dev": {GREEDY: 29.4, BEAM: 30.0}, "times": {GREEDY: 2.4, BEAM: 14.1}}, BEAM, 30.0),
        ({"dev": {GREEDY: 29.4, BEAM: 30.0}, "times": {GREEDY: 2.4, BEAM: 14.1}, "margin": 0.7}, GREEDY, 29.4),
        ({"dev": {GREEDY: 30.0, BEAM: 30.0}, "times": {BEAM: 8.0}}, BEAM, 30.0),
        ({"dev": {GREEDY: 29.9, BEAM: 30.0}}, BEAM, 30.0),
        # As many BLEU, and fewer valid outputs.
        (
            {
                "dev": {GREEDY: 30.0, BEAM: 30.0},
                "validity": {GREEDY: 0.60, BEAM: 0.61},
                "times": {GREEDY: 2.4, BEAM: 14.1},
            },
            BEAM,
            30.0,
        ),
        # Without any, test.
        ({}, GREEDY, None),
    ],
)
def test_the_fastest_of_the_best_on_dev_is_recommended(facts, key, dev):
    recommended = recommended_of(*report_inputs(TEST, **facts))
    assert (recommended.row.key, recommended.on_dev.get(main_metric())) == (key, dev)


def test_a_better_row_that_dev_left_out_is_named():
    def better(**facts):
        inputs, candidates = report_inputs(TEST, **facts)
        left_out = usage.better_on_test(candidates, recommended_of(inputs, candidates))
        return left_out and left_out.row.key

    assert better(dev={BEAM: 25.0}) == GREEDY
    # The prior mean is worse on test; of rows on dev, and without any, the best is recommended as it is.
    assert better(dev={GREEDY: 25.0}) is None
    assert better(dev={GREEDY: 24.0, BEAM: 25.0}) is None and better() is None


def test_the_table_of_needs_has_figures_and_says_what_decides(monkeypatch):
    monkeypatch.setattr(usage, "command_of", lambda *_: "command")

    def table(**facts):
        return usage.needs_table(*report_inputs(TEST, **facts))

    on_dev = table(dev={BEAM: 25.0}, times={BEAM: 14.1})
    (cells,) = on_dev.rows
    assert list(cells)[3:] == ["25.0", "29.0", "14.1"]
    # Times are written as in the other tables, those of a second or more too.
    times = [list(table(dev={BEAM: 25.0}, times={BEAM: time}).rows[0])[-1] for time in (1.3, 2345.0)]
    assert times == ["1.30", "2,345"]
    # Two rows are left out, and one of them is better on test.
    assert on_dev.caption.line.endswith(" 2.") and " 30.0 " in on_dev.caption.notes["Left out"]
    on_test = table()
    assert "flatters" in on_test.caption.line and not on_test.caption.notes["Left out"]
    # Of systems that were still learning, those of the rows are named.
    learning = [
        table(dev={BEAM: 25.0}, unfinished=names).caption.notes["Still learning"] for names in (["teacher"], ["lvm"])
    ]
    assert learning[0].startswith("teacher: ") and not learning[1]


def served(dev=None, **facts):
    """Keys of rows by the needs that they serve."""
    inputs, candidates = report_inputs(TEST, dev, **facts)
    chosen = needs.served(usage.selectable(candidates), inputs.manifest.report.margin)
    return {need: candidate.row.key for need, candidate in chosen.items()}


def test_every_need_is_served_by_the_fastest_of_its_best_rows_on_dev():
    times = {GREEDY: 2.4, BEAM: 14.1, PRIOR: 1.0}
    dev = {GREEDY: 30.0, BEAM: 31.0, PRIOR: 10.0}
    assert served(dev, times=times) == {
        needs.FASTEST_NEED: GREEDY,
        "one pass by itself": PRIOR,
        "best of all": BEAM,
        "autoregressive search": BEAM,
    }
    # A row of the kind that dev did not measure does not count; without dev, test decides.
    assert "one pass by itself" not in served({GREEDY: 30.0, BEAM: 31.0}, times=times)
    assert served(times=times)["best of all"] == GREEDY
    # As little may be lost in validity, and without times no row is the fastest.
    limited = served(dev, times=times, validity={GREEDY: 0.7, BEAM: 0.9, PRIOR: 0.9})
    assert limited[needs.FASTEST_NEED] == BEAM
    assert served(dev).keys() == {"one pass by itself", "best of all", "autoregressive search"}
    # A metric that a row lacks decides nothing: dev chose the settings of a beam by BLEU alone.
    without_beam = {GREEDY: 30.0, PRIOR: 10.0}
    lacking = served(without_beam, times=times, tuned={BEAM: 31.0}, validity={GREEDY: 0.7, PRIOR: 0.9})
    assert (lacking["best of all"], lacking[needs.FASTEST_NEED]) == (BEAM, GREEDY)
    # Scored without repetitions, as in the tables, the prior mean is within two points, and the fastest.
    assert served(dev | {PRIOR: 27.5}, times=times)[needs.FASTEST_NEED] == PRIOR


def test_one_pass_is_a_search_that_repeats_nothing():
    rows = {
        ("inat", "one"): {"search": "iterative-refinement", "passes": 1},
        ("inat", "four"): {"search": "iterative-refinement", "passes": 4},
        ("lvm", "delta-1"): {"search": "delta", "steps": 1},
        PRIOR: DECODES[PRIOR],
    }
    several = reports.manifest(rows, reports.SYSTEMS | {"inat": reports.INAT})
    in_one_pass = {decode.key for decode in several.decodes if needs.in_one_pass(decode)}
    assert in_one_pass == {("inat", "one"), PRIOR}


def write_texts(plan, sources, translations):
    """Write source, reference and the translations of the latent-variable model on test."""
    (decode,) = (decode for decode in plan.loaded.decodes if decode.system == "lvm")
    translation = plan.translation(decode, 1, "test")
    texts = {plan.corpus("test", "source"): sources, plan.reference("test"): ["the reference"] * len(sources)}
    for path, lines in (texts | {translation: translations}).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Path(translation)


@pytest.fixture
def section(tmp_path, monkeypatch):
    """Write texts and a bundle to the folder; returns the section's blocks for a row decoded without repetitions."""

    def make(sources, normalisation=None, removal=None):
        monkeypatch.chdir(tmp_path)
        inputs, candidates = report_inputs(TEST | {PRIOR: 40.0}, remove_repetitions=removal)
        translation = write_texts(inputs.manifest.plan, sources, ["a a tree"] * len(sources))
        translation.with_suffix(".jsonl").write_text('{"without_repeated_subwords": "a tre"}\n' * len(sources))
        description = bundle_description("prior-mean", NormalisationConfig(**(normalisation or {})))
        folder = Path(inputs.manifest.plan.finished_bundle("lvm", 1))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bundle.json").write_text(json.dumps(description))
        (folder / "subwords").mkdir(exist_ok=True)
        (folder / "subwords/subwords.json").write_text("{}")
        return usage.blocks(inputs, candidates)

    return make


@pytest.mark.parametrize(
    ("removal", "output"), [(None, "a tre"), ("subwords", "a tre"), ("words", "a tree"), ("none", "a a tree")]
)
def test_the_first_ten_translations_are_those_that_the_bundle_gives(removal, output, section):
    *_, table = section([f"Satz {number}." for number in range(12)], removal=removal)
    assert [row[0].text for row in table.rows] == [f"Satz {number}." for number in range(10)]
    assert {row[2].text for row in table.rows} == {output}


def commands(blocks):
    """The command of the section, and the one that repeats its translations."""
    return [block.text for block in blocks if isinstance(block, Command)]


def test_text_that_is_another_one_once_it_is_normalised_again_is_taken_as_it_is(section):
    assert "--normalised" not in commands(section(["Es gibt A & B ."]))[1]
    command, again = commands(section(["Es gibt A & amp ; B ."], {"lowercase": True, "references": "given"}))
    assert again.endswith(" --normalised") and "--normalised" not in command


def test_the_command_gives_the_translations_of_lines_with_several_sentences(
    tiny_bundles, tmp_path, capsys, monkeypatch
):
    sources, bundle = ["der Hund ruht heute. Ein Vogel kommt!", "Kein Mann bleibt noch dort."], tiny_bundles["lvm"]
    translator = Translator.load(bundle, device="cpu", threads=1)
    hypotheses = translator.search(sources, translator.request("prior-mean", normalised=True, return_scores=True))
    monkeypatch.chdir(tmp_path)
    inputs, candidates = report_inputs(TEST | {PRIOR: 40.0}, remove_repetitions="words")
    plan = inputs.manifest.plan
    write_texts(plan, sources, translator.text(hypotheses.tokens))
    shutil.copytree(bundle, plan.finished_bundle("lvm", 1))
    blocks = usage.blocks(inputs, candidates, device="cpu")
    words = shlex.split(commands(blocks)[1].partition("| continuum translate ")[2])
    cli.main(["translate", *words, "--remove-repetitions", "words", "--input", plan.corpus("test", "source")])
    assert capsys.readouterr().out.splitlines() == [row[2].text for row in blocks[-1].rows]
    assert translator.translate(sources, remove_repetitions="words") != translator.translate(
        sources, remove_repetitions="words", split=False
    )


def test_a_choice_at_the_edge_of_its_grid_is_reported_beside_the_choice():
    points = [{"settings": {"beam": width}, "bleu": 20.0 + width, "mean_steps": 0.0} for width in (2, 4)]
    edge = "beam 4 is at the edge"
    decode = manifest(DECODES).decode(*BEAM)
    choices = [Choice(decode, 1, {"beam": 4}, points, at_edge) for at_edge in ((), (edge,))]
    titles = [fold.title for fold in page.chosen(choices)]
    assert titles == [f"teacher, beam-4, seed 1: {BEAM_4}", f"teacher, beam-4, seed 1: {BEAM_4} ({edge})"]


def test_searches_without_steps_have_no_column_of_steps():
    decode = manifest(DECODES).decode(*BEAM)

    def heads(steps: float):
        point = {"settings": {"beam": 4}, "bleu": 24.0, "mean_steps": steps}
        (fold,) = page.chosen([Choice(decode, 1, {"beam": 4}, [point])])
        (table,) = fold.blocks
        return table.heads

    assert len(heads(0.0)) == len(heads(2.5)) - 1
