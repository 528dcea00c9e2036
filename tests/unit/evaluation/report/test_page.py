"""The page's words: marked changes, folded steps, escaping."""

import re

from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.analyses.changes import changed_words
from workflow_src.evaluation.report import figures_speed, page, speed_page

sentences = st.lists(st.sampled_from(["the", "a<b>", "&", "dog"]), max_size=6).map(" ".join)


@given(sentences, sentences)
def test_marking_changes_no_word_and_escapes_all(before, after):
    html = str(page.marked(before, after))
    text = html.replace("<mark>", "").replace("</mark>", "")
    assert "<" not in text
    assert text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").split() == after.split()
    assert ("<mark>" in html) == any(changed_words(before.split(), after.split()))


def test_neighbouring_changes_share_a_mark():
    assert page.marked("a b c", "a x y c") == "a <mark>x y</mark> c"


def test_steps_that_change_nothing_more_are_folded():
    steps = page.example_steps(["a", "b", "b", "b", "c", "c"])
    assert [(s["label"], s["same"]) for s in steps] == [("1", False), ("2–3", True), ("4", False), ("5", True)]
    assert page.example_steps(["a"]) == []


def test_the_prior_mean_stands_once_where_searches_share_it():
    example = {"index": 0, "source": "s", "reference": "r", "teacher": None}
    shared = page.examples({"examples": [example | {"searches": {"delta": ["a", "b"], "score": ["a", "c"]}}]})[0]
    assert shared["prior_mean"] == "a" and all(search["start"] is None for search in shared["searches"])
    split = page.examples({"examples": [example | {"searches": {"delta": ["a", "b"], "score": ["x", "c"]}}]})[0]
    assert split["prior_mean"] is None and [search["start"] for search in split["searches"]] == ["a", "x"]
    assert page.examples(None) == []


def test_protocol_in_words_is_honest_about_disturbance():
    protocol = {
        "sentences": 200, "warmup": 10, "repeats": 5, "batch": 64, "threads": 2, "device": "cpu", "device_name": None,
        "precision": "float32", "baseline": None, "other_load_cores": [0.1, 0.8], "disturbed_rounds": 1,
        "redone_rounds": 2, "disturbed_above_cores": 0.25,
    }  # fmt: skip
    text = page.protocol_words({"protocol": protocol, "rows": []})
    assert re.search(
        r"two CPU threads .* 0.10 to 0.80 of a core .* redone \(two in all\), and one of those kept stayed", text
    )
    assert "Speed-ups" not in text
    assert page.protocol_words(None) == "Speed was not measured in this run."


def test_a_step_that_costs_less_than_the_noise_is_told_as_such():
    costs = [
        {"system": "lvm", "search": "delta", "ms_per_step": -0.9},
        {"system": "s", "search": "score", "ms_per_step": 1.25},
    ]
    told = page.step_cost_words({"step_costs": {"costs": costs, "delta_over_score": None}})
    assert "less than the noise of the measurement for delta (lvm), 1.25 ms for score (s)" in told


def test_engines_predictions_and_protocols_are_told():
    protocol = {
        "sentences": 200, "warmup": 10, "repeats": 5, "batch": 64, "threads": 1, "device": "cpu", "device_name": None,
        "precision": "float32", "baseline": None, "other_load_cores": [0.1], "disturbed_rounds": 0, "redone_rounds": 0,
        "disturbed_above_cores": 0.25, "engines": {"continuum": "float32", "ctranslate2-int8": "int8"},
    }  # fmt: skip
    row = {"system": "teacher", "name": "greedy", "search": "greedy", "latency_ms": 7.4, "latency_mean": 8.0}
    row |= {
        "latency_std": 3.0,
        "latency_rounds": [7.5, 7.1, 7.3],
        "sentences_per_second": 836.2,
        "batch": 64,
        "speedup": None,
    }
    row |= {"by_length": [{"shortest": 1, "longest": 4, "latency_ms": 5.0, "mean_length": 2.5, "sentences": 9}]}
    fast = row | {"name": "greedy-ctranslate2-int8", "engine": "ctranslate2", "compute_type": "int8", "speedup": 2.0}
    del fast["latency_rounds"]
    one = {"protocol": protocol, "rows": [row, fast]}
    assert "(float32; CTranslate2 int8), each engine in a process of its own" in page.protocol_words(one)
    manifest = {"systems": {"teacher": {"family": "transformer", "base": None}}}
    (table,) = speed_page.protocol_tables({"protocols": [one]}, manifest)
    assert table["title"] == "Speed on 1 CPU thread; other load up to 0.10 cores"
    assert table["heads"][-1] == "1–4 subwords, ms"
    assert table["heads"][2:4] == ["medians of rounds, ms", "mean ± deviation over sentences, ms"]
    assert table["rows"][0] == ["teacher: greedy", "7.40", "7.10–7.50", "8.00 ± 3.00", "836", "64", "–", "5.00"]
    assert table["rows"][1][:3] == ["teacher: greedy, CTranslate2 int8", "7.40", "–"] and table["rows"][1][6] == "2.00×"
    assert "| teacher: greedy | 7.40 | 7.10–7.50 | 8.00 ± 3.00 |" in speed_page.markdown(table)
    costs = [{"system": "lvm", "search": "delta", "ms_per_step": 1.8}]
    costs = {"costs": costs, "delta_over_score": 3.0, "predicted_delta_over_score": 4.0, "share_of_predicted": 0.75}
    assert "predicts 4.00, of which 0.75 was reached." in page.step_cost_words({"step_costs": costs})


def test_time_against_length_shows_the_fewest_steps_of_each_search():
    bins = [{"mean_length": 3.0, "latency_ms": 1.0}, {"mean_length": 9.0, "latency_ms": 2.0}]
    rows = [
        {"system": "score", "name": f"score-{n}", "search": "score", "steps": n, "by_length": bins} for n in (4, 1, 2)
    ]
    rows.append({"system": "teacher", "name": "greedy", "search": "greedy", "by_length": bins})
    rows.append({"system": "teacher", "name": "old", "search": "greedy"})
    assert [row["name"] for row in figures_speed.shown(rows)] == ["score-1", "greedy"]
    systems = {"teacher": {"family": "transformer"}, "score": {"family": "score", "base": "lvm"}}
    figure = figures_speed.time_by_length({"rows": rows}, {"systems": systems})
    assert [text.get_text() for text in figure.axes[0].texts] == ["score: score, L = 1", "teacher: greedy"]
    assert "not measured" in figures_speed.time_by_length(None, {}).texts[0].get_text()


def test_a_caption_tells_what_several_seeds_mean_for_quality_and_for_speed():
    def told(*seeds: int) -> str:
        manifest = {"dataset": "toy", "source": "de", "target": "en", "rows": [{"seed": seed} for seed in seeds]}
        return page.caption("subwords", manifest, "test", 1000, timed=True)

    assert "brackets hold the 95 % bootstrap interval" in told(1, 1) and "from text to text. ±" in told(1, 1)
    assert "±: the standard deviation over sentences" in told(1)
    assert "means ± deviation over 3 seeds" in told(1, 2, 3) and "with the systems of the first seed." in told(1, 2, 3)
