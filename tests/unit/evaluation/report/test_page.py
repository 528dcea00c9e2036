"""The page's words: marked changes, folded steps, facts of speed."""

import dataclasses
import json
from pathlib import Path

import reports
from hypothesis import given
from hypothesis import strategies as st
from titles import BLEU, DELTA, GREEDY, SCORE, SCORE_1

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.evaluation.document import Paragraph, Strong, Table, changed_words, marked
from workflow_src.evaluation.manifest import colour_class
from workflow_src.evaluation.report import captions, inputs, page, speed_page, trained
from workflow_src.evaluation.report.files import Traces
from workflow_src.searches.argmax import SEARCH as ARGMAX
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN

MANIFEST = reports.manifest()
sentences = st.lists(st.sampled_from(["the", "a<b>", "&", "dog"]), max_size=6).map(" ".join)


@given(sentences, sentences)
def test_marking_changes_no_word(before, after):
    runs = marked(before, after)
    texts = [run.text if isinstance(run, Strong) else run for run in runs]
    assert " ".join(texts) == after
    assert any(isinstance(run, Strong) for run in runs) == any(changed_words(before.split(), after.split()))


def test_languages_have_their_names_by_codes_of_two_and_three_letters():
    names = dict.fromkeys(("de", "deu", "ger"), "German") | {"en": "English", "ro": "Romanian", "tr": "Turkish"}
    names |= {"hi": "Hindi", "zh": "Chinese", "sw": "Swahili", "el": "Modern Greek", "nb": "Norwegian Bokmål"}
    names |= {"ang": "Old English", "gsw": "Swiss German", "yue": "Yue Chinese", "to": "Tonga (Tonga Islands)"}
    assert {code: page.language(code) for code in names} == names
    # Not assigned, and no code: a name of a language is none.
    assert [page.language(code) for code in ("xx", "qaa", "zzz", "ewe", "Ewe")] == ["xx", "qaa", "zzz", "Ewe", "Ewe"]


def test_neighbouring_changes_share_a_mark():
    assert marked("a b c", "a x y c") == ("a", Strong("x y"), "c")


PASSES = {"search": "iterative-refinement"}
BY_PASSES = reports.manifest(
    {("inat", f"by-{n}"): PASSES | {"passes": n} for n in (1, 2, 4)}
    | {("inat", "iterative-refinement-8-adaptive"): PASSES | {"passes": 8, "stop": "adaptive"}},
    reports.SYSTEMS | {"inat": reports.INAT},
)


def traces(examples: list[dict], followed: dict[str, dict]) -> Traces:
    return Traces.model_validate({"pool": 9, "examples": examples, "searches": followed})


def test_passes_are_counted_from_one():
    name = "iterative refinement"
    searches = {name: ["a", "b", "b", "b", "c", "c"], "delta": ["x", "y"]}
    example = {"index": 0, "source": "s", "reference": "r", "teacher": None, "searches": searches}
    followed = {
        name: {"system": "inat", "search": "iterative-refinement"},
        "delta": {"system": "lvm", "search": "delta"},
    }
    _, shown = page.examples(traces([example], followed), BY_PASSES)
    assert [(line.name, line.text, line.remark) for line in shown.lines[2:]] == [
        (f"{name} 1", "a", False),
        (f"{name} 2", "b", False),
        (f"{name} 3–4", "unchanged", True),
        (f"{name} 5", "c", False),
        (f"{name} 6", "unchanged", True),
        ("delta 0", "x", False),
        ("delta 1", "y", False),
    ]


def test_the_start_of_a_search_is_named_by_what_that_search_begins_with():
    """Whatever other searches of the project begin with."""
    for search, names in (
        ("iterative-refinement", [ARGMAX.title, "x 2"]),
        ("mask-predict", ["x 1", "x 2"]),
        ("undeclared", ["x 0", "x 1"]),
    ):
        example = {"index": 0, "source": "s", "reference": "r", "teacher": None, "searches": {"x": ["a", "b"]}}
        _, shown = page.examples(traces([example], {"x": {"system": "inat", "search": search}}), BY_PASSES)
        assert [line.name for line in shown.lines[2:]] == names


def test_the_prior_mean_stands_once_where_searches_share_it():
    example = {"index": 0, "source": "s", "reference": "r", "teacher": None}
    followed = {"delta": {"system": "lvm", "search": "delta"}, "score": {"system": "score", "search": "score"}}
    same_start = example | {"searches": {"delta": ["a", "b"], "score": ["a", "c"]}}
    _, shared = page.examples(traces([same_start], followed), MANIFEST)
    classes = [colour_class(MANIFEST.plan.system(name).family.look.colour) for name in ("lvm", "score")]
    assert len(set(classes)) == 2
    names = [PRIOR_MEAN.title, "delta 1", "score 1"]
    assert [(line.name, line.text) for line in shared.lines[2:]] == list(zip(names, "abc", strict=True))
    assert [line.style for line in shared.lines[3:]] == classes
    # Systems that share a search are named with it; the file names the search of each.
    named = {"lvm-raw delta": {"system": "lvm-raw", "search": "delta"}}
    one_search = example | {"searches": {"lvm-raw delta": ["a", "b"]}}
    assert page.examples(traces([one_search], named), MANIFEST)[1].lines[-1].style == classes[0]
    other_starts = example | {"searches": {"delta": ["a", "b"], "score": ["x", "c"]}}
    _, split = page.examples(traces([other_starts], followed), MANIFEST)
    assert [line.name for line in split.lines[2:]] == ["delta 0", "delta 1", "score 0", "score 1"]
    assert page.examples(None, MANIFEST) == []


def facts(*rows, **protocol) -> dict[str, str]:
    """The facts of one protocol by name."""
    measurement = reports.measurement(*rows, **protocol)
    table, *_ = speed_page.blocks(reports.speed(*rows, protocols=(measurement,)), MANIFEST)
    assert len(table.heads) == 2
    return dict(table.rows)


def test_the_facts_of_a_protocol_are_honest_about_disturbance():
    load = {"other_load_cores": [0.1, 0.8], "redone_rounds": 2}
    measured = facts(reports.timed("score", "score-1", 1.0), threads=2, **load)
    assert measured["cores that other processes used"].startswith("0.10–0.80; disturbed above ")
    assert measured["rounds"].endswith("; 2 measured again, 1 disturbed") and measured["speed-ups over"] == "–"
    assert speed_page.blocks(None, MANIFEST) == [Paragraph.of("Speed was not measured in this run.")]
    assert speed_page.blocks(reports.speed(), MANIFEST) == [Paragraph.of("No row could be timed.")]


def test_the_facts_of_a_gpu_say_its_batches_and_the_share_of_subwords():
    rows = [reports.timed("lvm", f"row-{size}", 1.0, batch=size, subword_share=size / 4096) for size in (512, 4096)]
    on_gpu = facts(*rows, device="cuda", device_name="A GPU", threads=4)
    assert on_gpu["machine"] == "A GPU, 4 CPU threads" and on_gpu["size of batches"].startswith("512–4,096, ")
    assert on_gpu["% of the time for subwords"] == "12–100"
    # An unknown share is no zero.
    on_cpu = facts(reports.timed("lvm", "row", 1.0))
    assert (on_cpu["size of batches"], on_cpu["% of the time for subwords"]) == ("64", "–")


def test_costs_of_steps_and_their_ratios_are_tables():
    costs = [
        {"system": "lvm", "search": "delta", "ms_per_step": -0.9},
        {"system": "s", "search": "score", "ms_per_step": 1.25},
    ]
    ratio = {"control": "delta", "search": "score", "measured": 3.0, "predicted": 4.0, "share_of_predicted": 0.75}
    # Of searches that no row of the experiment has.
    unknown = {"control": "delta", "search": "energy", "measured": None, "predicted": None}
    measured = reports.speed(costs={"costs": costs, "ratios": [ratio, unknown]})
    *_, beside = speed_page.blocks(measured, MANIFEST)
    steps, ratios = (table.rows for table in beside.blocks)
    # Less than the noise of the measurement, and no negative time.
    assert [row[:2] for row in steps] == [[DELTA, "lvm"], [SCORE, "s"]]
    assert "noise" in steps[0][2] and steps[1][2] == "1.25"
    assert ratios == [[f"{DELTA} / {SCORE}", "3.00", "4.00"]]
    *_, alone = speed_page.blocks(reports.speed(costs={"costs": costs, "ratios": [unknown]}), MANIFEST)
    assert len(alone.blocks) == 1
    *_, sentence = speed_page.blocks(reports.speed(costs={"failure": "a fault.", "costs": [], "ratios": []}), MANIFEST)
    assert "not measured (a fault)" in sentence.parts[0]


def test_engines_and_protocols_are_reported():
    engines = {"eager": "float32", "ctranslate2-int8": "int8"}
    bins = [{"shortest": 1, "longest": 4, "latency_ms": 5.0, "mean_length": 2.5, "sentences": 9}]
    figures = {"latency_mean": 8.0, "latency_std": 3.0, "sentences_per_second": 836.2, "by_length": bins}
    row = reports.timed("teacher", "greedy", 7.4, latency_rounds=[7.5, 7.1, 7.3], **figures)
    fast = reports.timed("teacher", "greedy-ctranslate2-int8", 7.4, speedup=2.0, **figures)
    assert facts(row, fast, engines=engines)["precision"] == "float32; CTranslate2 int8"
    measurement = reports.measurement(row, fast, engines=engines)
    (fold,) = speed_page.protocol_tables(reports.speed(protocols=(measurement,)), MANIFEST)
    (table,) = fold.blocks
    assert fold.title == "Speed on 1 CPU thread; other load up to 0.10 cores"
    assert table.heads[-1] == "1–4 subwords, ms"
    assert table.heads[2:4] == ["medians of rounds, ms", "mean ± deviation over sentences, ms"]
    first, second = table.rows
    assert first == [f"teacher: {GREEDY}", "7.40", "7.10–7.50", "8.00 ± 3.00", "836", "64", "–", "5.00"]
    assert second[:3] == [f"teacher: {GREEDY}, CTranslate2 int8", "7.40", "7.40"] and second[6] == "2.00×"


def test_what_was_not_timed_is_said_with_its_reason():
    lost = [
        {"system": "teacher", "name": name, "engine": "eager", "batch": 1, "reason": "no memory."}
        for name in ("greedy", "gone")
    ]
    failed_batch = {"size": 16384, "reason": "memory ran out"}
    row = reports.timed("score", "score-1", 1.0, failed_batch=failed_batch)
    on_gpu = reports.measurement(row, device="cuda", device_name="A GPU", not_timed=lost[:1])
    on_cpu = reports.measurement(not_timed=lost)
    speed = reports.speed(row, protocols=(on_gpu, on_cpu))
    facts, failures = speed_page.blocks(speed, MANIFEST)
    assert [row[:2] + row[3:] for row in failures.rows] == [
        [f"teacher: {GREEDY}", "A GPU", "no memory", "1"],
        [f"score: {SCORE_1}", "A GPU", "memory ran out", "16,384"],
        [f"teacher: {GREEDY}", "1 CPU thread", "no memory", "1"],
        ["teacher: gone", "1 CPU thread", "no memory", "1"],
    ]
    # A protocol without rows has no column.
    assert facts.heads == ["", "A GPU"]


def test_time_against_length_shows_the_fewest_steps_of_each_search():
    bins = [
        {"shortest": 1, "longest": 4, "mean_length": 3.0, "latency_ms": 1.0},
        {"shortest": 5, "longest": 12, "mean_length": 9.0, "latency_ms": 2.0},
    ]
    rows = [reports.timed("score", f"score-{n}", 1.0, by_length=bins) for n in (4, 1, 2)]
    rows.append(reports.timed("teacher", "greedy", 1.0, by_length=bins))
    rows.append(reports.timed("teacher", "beam-4", 1.0))
    # A row that the experiment has no more.
    rows.append(reports.timed("teacher", "gone", 1.0, by_length=bins))
    drawn = json.dumps(speed_page.time_by_length(reports.speed(*rows), MANIFEST).to_dict())
    assert f"score: {SCORE_1}" in drawn and f"teacher: {GREEDY}" in drawn and "beam 4" not in drawn
    assert speed_page.time_by_length(None, MANIFEST) is None


def test_a_caption_says_what_outputs_are_scored_against():
    def words(tokeniser: str = "13a", **steps) -> str:
        signatures = {BLEU: f"nrefs:1|tok:{tokeniser}|version:2.6.0"}
        return captions.scored_words(NormalisationConfig(**steps), MANIFEST.metrics, signatures)

    assert "tokeniser" not in words() and "its tokeniser zh" in words("zh")
    assert "references" not in words(lowercase=True, references="given")
    assert "lowercased; references are normalised" in words(lowercase=True, references="normalised")


def test_the_table_of_systems_says_what_cannot_be_reached_where_some_system_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    histories = {
        "teacher": [{"step": 2, "dev_bleu": 30.0}],
        # The entry of averaged weights has no figures of updates.
        "ctc": [{"step": 2, "unreachable": 0.0125, "dev_unreachable": 0.5}, {"step": 2, "dev_unreachable": 0.002}],
    }

    def table(*names: str) -> Table:
        manifest = dataclasses.replace(reports.manifest(), training=tuple((name, 1) for name in names))
        for name in names:
            paths = manifest.plan.training_files(name, 1)
            Path(paths["config"]).parent.mkdir(parents=True, exist_ok=True)
            Path(paths["config"]).write_text("{}")
            Path(paths["log"]).write_text("".join(json.dumps(entry) + "\n" for entry in histories[name]))
        return trained.table(inputs.read_trainings(manifest))

    two_systems = table("teacher", "ctc")
    column = two_systems.heads.index(trained.UNREACHABLE)
    assert [row[column] for row in two_systems.rows] == ["–", "1.25 / 0.20"]
    assert trained.UNREACHABLE not in table("teacher").heads
