"""The main table: grouping, order, means over seeds, published figures."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest
import reports
from reports import manifest, row, stepped
from titles import BEAM_4, BLEU, CHRF, DELTA_1, SCORE_1, SCORE_4

from workflow_src import registry
from workflow_src.errors import ConfigError
from workflow_src.evaluation.document import Caption, Cell, GroupRow
from workflow_src.evaluation.labels import changed, words
from workflow_src.evaluation.report import tables
from workflow_src.evaluation.report.evidence import Group
from workflow_src.registry import engines
from workflow_src.searches.ctc_greedy import SEARCH as ONE_PASS
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN
from workflow_src.spec import SearchSettings, parse

MANIFEST = manifest()
ROWS = [
    row("score", "score-4", 34.0, steps=4),
    row("lvm-raw", "prior-mean", 29.0, steps=0),
    row("lvm", "prior-mean", 33.0, steps=0),
    row("lvm", "prior-mean", 33.5, steps=0, removed="subwords"),
    row("score", "score-1", 33.7, steps=1),
    row("lvm", "delta-1", 33.4, steps=1),
    row("teacher", "beam-4", 41.0, beam=4),
]


LATENCY, ROUNDS, FASTEST = "ms / sentence, ± over sentences", "medians of rounds, ms", "over fastest as good"
PUBLISHED, OURS = "published (sacreBLEU)", "ours, same convention"


def headings(table, report_manifest=MANIFEST):
    """Headings of the table's figures."""
    return tables.block(table, report_manifest, Caption("")).heads[1:]


def cell(line, heading, report_manifest=MANIFEST):
    """The figure and the note of a line in a column, which may be missing from the table."""
    block = tables.block([Group("", line.decode.system, (line,))], report_manifest, Caption(""))
    shown = dict(zip(block.heads, block.rows[1], strict=True)).get(heading, "–")
    return (shown, "") if isinstance(shown, str) else (shown.text, shown.note)


def test_groups_and_their_order():
    groups = reports.groups(ROWS, MANIFEST, removed="none")
    assert [(group.head.name, [line.label for line in group.lines]) for group in groups] == [
        ("teacher", [BEAM_4]),
        ("lvm", [PRIOR_MEAN.title, DELTA_1, SCORE_1, SCORE_4]),
        ("lvm-raw", [PRIOR_MEAN.title]),
    ]
    removed = reports.groups(ROWS, MANIFEST, removed="subwords")
    assert [(line.label, line.figures["bleu"]) for group in removed for line in group.lines] == [
        (BEAM_4, 41.0),
        (PRIOR_MEAN.title, 33.5),
    ]


def test_a_model_stands_before_its_refiners_whatever_its_family():
    systems = {**reports.SYSTEMS, "ctc": reports.SYSTEMS["lvm"] | {"family": "nat", "preset": "tiny-vae"}}
    systems["score"] = reports.SYSTEMS["score"] | {"base": "ctc"}
    decodes = {("ctc", "prior-mean"): {"search": "prior-mean"}, ("score", "score-1"): reports.stepped("score", 1)}
    rows = [row("score", "score-1", 34.0, steps=1), row("lvm", "prior-mean", 33.0, steps=0)]
    rows[1] |= {"system": "ctc", "family": "nat"}
    (group,) = reports.groups(rows, manifest(decodes, systems), removed="none")
    assert group.head.name == "ctc" and [line.label for line in group.lines] == [PRIOR_MEAN.title, SCORE_1]


def test_published_figures_stand_by_name_in_the_first_group_or_by_system():
    published = manifest(
        expected={"score-4": 29.1, "prior-mean": 27.0, "lvm-raw/prior-mean": 20.0, "latent-search": 30.2}
    )
    rows = sorted(ROWS, key=lambda row: row["system"] == "lvm-raw")
    table = reports.groups(rows, published, removed="none")
    expected = {(line.system, line.name): line.expected for group in table for line in group.lines}
    assert expected[("score", "score-4")] == 29.1 and expected[("lvm", "prior-mean")] == 27.0
    assert expected[("lvm-raw", "prior-mean")] == 20.0 and expected[("lvm", "delta-1")] is None
    assert tables.unmatched_expected(table, published.report.expected) == {"latent-search": 30.2}


def test_pairs_of_rows_in_the_published_order_are_counted():
    def order_of(**expected):
        return tables.published_order(reports.groups(ROWS, manifest(expected=expected), removed="none"))

    # Ours: delta 33.4, score with one step 33.7, with four 34.0, the other model 29.0.
    published = {"delta-1": 27.0, "score-1": 26.0, "score-4": 28.0}
    assert "2 of 3" in order_of(**published) and "+0.33" in order_of(**published)
    assert order_of(**published, **{"lvm-raw/prior-mean": 26.0}).partition(":")[2].startswith(" 4 of 5")
    assert order_of(**{"delta-1": 27.0}) == order_of() == ""
    # Rows without BLEU by the published convention.
    uncounted = manifest(expected=published, expected_convention="tokenised")
    assert tables.published_order(reports.groups(ROWS, uncounted, removed="none")) == ""


def test_columns_without_figures_are_left_out():
    table = reports.groups(ROWS, MANIFEST, removed="none")
    assert headings(table) == [BLEU, CHRF]
    times = {"latency_ms": 2.0, "latency_std": 0.5, "latency_rounds": (2.04, 1.9, 2.061)}
    timed = [row(of["system"], of["decode"], of["bleu"], removed=of["variant"], validity=0.5, **times) for of in ROWS]
    proof = reports.evidence([row for row in timed if row["variant"] == "none"])
    table = reports.groups(timed, manifest(expected={"score-4": 29.1}), "none", proof)
    assert headings(table) == [BLEU, PUBLISHED, CHRF, "valid, %", LATENCY, ROUNDS, FASTEST]
    assert cell(table[0].lines[0], LATENCY) == ("2.00", "± 0.50")
    assert cell(table[0].lines[0], ROUNDS) == ("1.90–2.06", "")
    assert cell(table[0].lines[0], "valid, %") == ("50.0", "")
    assert cell(table[0].lines[0], PUBLISHED) == ("–", "")


def test_what_removing_repetitions_is_worth():
    rows = [row("teacher", "beam-4", 41.0, beam=4)]
    for seed in (1, 2):
        for removal, gain in (("subwords", 3.0), ("none", 0.0), ("words", 1.0)):
            rows.append(row("score", "score-1", 30 + gain + seed, steps=1, removed=removal, seed=seed))
            rows.append(row("lvm", "prior-mean", 20 + gain, steps=0, removed=removal, seed=1))
    group, _, line = tables.removals(reports.results(rows), "test", MANIFEST).rows
    assert group.title == "Latent-variable model “lvm”, tiny, distilled data"
    assert line == [SCORE_1, "31.5 ± 0.7", "32.5 ± 0.7", "34.5 ± 0.7"]
    assert tables.removals(reports.results(rows[:1]), "test", MANIFEST) is None


def label(system, name, settings, picked=()):
    seeds = range(1, 1 + max(1, len(picked)))
    described = manifest({(system, name): settings}, picked={(system, name): picked} if picked else {}, seeds=seeds)
    return described.decode(system, name).label()


def test_names_that_differ_from_the_settings_are_shown():
    assert label("lvm", "delta-1-size0.5", stepped("delta", 1)) == "delta, L = 1 (delta-1-size0.5)"
    assert label("lvm", "delta-1", stepped("delta", 1)) == "delta, L = 1"
    # Settings are more informative than a name that is made of them.
    half = stepped("score", 1) | {"step_size": 0.5}
    assert label("score", "score-1-size0.5", half) == "score, L = 1 (step size 0.5)"
    assert label("score", "mine", half) == "score, L = 1 (mine)"


def test_systems_that_refine_one_model_alike_are_distinguished():
    systems = reports.SYSTEMS | {"other": reports.SYSTEMS["score"]}
    described = manifest(
        {("other", "score-1"): stepped("score", 1), ("lvm", "prior-mean"): {"search": "prior-mean"}}, systems
    )
    assert described.decode("other", "score-1").label() == f"{SCORE_1} (other)"
    assert described.decode("lvm", "prior-mean").label() == "prior mean"


def test_the_best_of_all_rows_and_of_those_without_autoregression_are_bold():
    rows = [
        row("teacher", "greedy", 40.0),
        row("teacher", "beam-4", 41.0, beam=4),
        row("lvm", "prior-mean", 30.0, steps=0),
        row("lvm", "delta-1", 33.0, steps=1),
    ]
    assert bold(rows) == ["41.0", "33.0"]
    assert bold([*rows, row("lvm", "delta-2", 42.0, steps=2)]) == ["42.0"]


def bold(rows):
    """Figures that stand out."""
    block = tables.block(reports.groups(rows, MANIFEST, "none"), MANIFEST, Caption(""))
    cells = [cell for row in block.rows if not isinstance(row, GroupRow) for cell in row]
    return [cell.text for cell in cells if isinstance(cell, Cell) and cell.strong]


def test_disturbed_rounds_are_marked():
    rounds = {"latency_ms": 2.0, "latency_std": 0.5, "latency_rounds": (2.04, 1.9, 2.061)}
    timed = [row(of["system"], of["decode"], of["bleu"], disturbed_rounds=(3,), **rounds) for of in ROWS]
    table = reports.groups(timed, MANIFEST, "none")
    assert headings(table)[-1] == f"{ROUNDS} (*: 1 of 3 disturbed)"
    assert cell(table[0].lines[0], headings(table)[-1]) == ("1.90–2.06*", "")
    assert tables.rounds_span([3.001, 3.0], ()) == "3.00" and tables.rounds_span([99.5, 120.2], (1,)) == "99.5*–120"


def test_means_over_fewer_seeds_say_so_and_have_no_seeds_label():
    """The second seed lacks a row and an energy; sentences of a row stopped after other numbers of steps."""
    stop = {"search": "score", "steps": 4, "stop_threshold": 0.1}
    decodes = reports.DECODES | {("score", "score-4-stop"): stop}
    rows = [row("lvm", "prior-mean", 30.0 + seed, steps=0, seed=seed) for seed in (1, 2)]
    rows[0]["energy_per_sentence"] = 5.0
    rows += [row("lvm", "delta-1", 33.0, steps=1, seed=1)]
    rows += [row("score", "score-4-stop", 34.0, steps=4, seed=seed, mean_steps=float(seed)) for seed in (1, 2)]
    seeds = manifest(decodes, seeds=(1, 2))
    lines = {line.name: line for group in reports.groups(rows, seeds, "none") for line in group.lines}
    assert lines["delta-1"].label.endswith(" (1 of 2 seeds)") and "seeds" not in lines["prior-mean"].label
    assert "1.5 steps used" in lines["score-4-stop"].label
    assert cell(lines["prior-mean"], "energy, nats", seeds) == ("5.0", "1 of 2 seeds")


def _timed(name, bleu, ms):
    return row("teacher", name, bleu, beam=4, latency_ms=ms)


MINE = {"search": "beam", "beam": 4, "engine": "ctranslate2-float32"}
INT8 = {"search": "prior-mean", "engine": "onnxruntime-int8"}


def test_the_fastest_as_good_on_the_same_kind_of_engine_is_compared_with():
    rows = [
        _timed("beam-4", 41.0, 10.0),
        _timed("greedy", 40.4, 6.0),
        _timed("beam-4-ctranslate2-int8", 41.0, 2.0),
        _timed("mine", 4.0, 1.0),
        row("lvm", "int8", 33.0, steps=0, latency_ms=0.5, removed="subwords"),
        row("lvm", "prior-mean", 33.0, steps=0, latency_ms=3.0, removed="subwords"),
        row("lvm", "delta-1", 4.9, steps=1, latency_ms=1.0, removed="subwords"),
        row("score", "score-4", 40.5, steps=4, latency_ms=4.0, removed="subwords"),
        row("score", "score-1", 41.5, steps=1, latency_ms=5.0, removed="subwords"),
        row("score", "score-2", 50.0, steps=2, latency_ms=1.0, removed="subwords"),
    ]
    report_manifest = manifest(reports.DECODES | {("teacher", "mine"): MINE, ("lvm", "int8"): INT8})

    def compared(**options):
        proof = reports.evidence(rows, margin=0.8, **options)
        groups = reports.groups(rows, report_manifest, "subwords", proof)
        assert cell(groups[0].lines[0], FASTEST)[0] != ""
        return {line.name: line for group in groups for line in group.lines}

    lines = compared()
    assert {name: line.figures["against_fastest"] for name, line in lines.items()} == {
        # Greedy search is 0.6 BLEU below beam search, within the margin.
        "beam-4": 0.6,
        "greedy": 1.0,
        "beam-4-ctranslate2-int8": 1.0,
        # Below 5 BLEU nothing is concluded.
        "mine": None,
        "delta-1": None,
        # 8 bits in one library beside 8 bits in another, our own engine beside itself.
        "int8": 4.0,
        "prior-mean": 2.0,
        "score-4": 1.5,
        "score-1": 2.0,
        # No autoregressive row is shown to lose less than the margin: beside the best one.
        "score-2": 10.0,
    }
    assert lines["prior-mean"].rival.name == "greedy" and lines["score-2"].rival.name == "beam-4"
    assert cell(lines["mine"], FASTEST) == ("–", "")
    assert cell(lines["int8"], FASTEST) == ("4.00×", "")
    # A row may have been cut short itself. Beside a best rival that was, there is no speed-up.
    cut = compared(unfinished=["lvm"])
    assert cut["prior-mean"].figures["against_fastest"] == 2.0
    assert {line.figures["against_fastest"] for line in compared(unfinished=["teacher"]).values()} == {None}
    # A test of few sentences shows no equality: a row is compared with itself, or with one that it is far above.
    few = compared(error=0.5)
    assert few["score-4"].figures["against_fastest"] is None and few["greedy"].figures["against_fastest"] == 1.0


def test_what_dev_chose_stands_in_a_rows_label():
    row = ("score", "score-1-tuned", stepped("score", 1))
    alike = [{"length_quantile": 0.6}, {"length_quantile": 0.6}]
    assert label(*row, alike) == f"{SCORE_1} (chosen: length quantile 0.6)"
    # Seeds with different chosen values share a row, whose name has the setting only.
    assert label(*row, [alike[0], {"length_quantile": 0.7}]) == f"{SCORE_1} (chosen: length quantile)"
    # Configured values are named too, and a choice that replaces one is named once.
    half = ("score", "score-1-half-tuned", stepped("score", 1) | {"step_size": 0.5})
    assert label(*half, alike) == f"{SCORE_1} (step size 0.5; chosen: length quantile 0.6)"
    assert label(*half, [{"step_size": 0.5}] * 2) == f"{SCORE_1} (chosen: step size 0.5)"


def shown(settings: SearchSettings) -> tuple:
    """What a table shows of a row with these settings, beside its system and engine."""
    search = registry.search_of(settings)
    return search.shown(settings), words(changed(search, settings))


def values_of(kind: type[SearchSettings], name: str) -> Sequence:
    """Values of a setting of any kind; some may not be allowed."""
    annotation = kind.model_fields[name].annotation
    if kind.option(name).steps:
        return [name for name, search in registry.searches().items() if search.refines]
    choices = [arg for part in (annotation, *get_args(annotation)) for arg in get_args(part) if isinstance(arg, str)]
    return [None, False, True, 0, 1, 2, 3, 0.25, 0.75, 2.5, "one", "other", *choices]


# Settings without which another one has no effect, or is refused.
WITH = {
    "patience": {"stop": "adaptive", "passes": 4},
    "length_penalty": {"lengths": 3},
    "length_quantile": {"lengths": 1, "length_beam": 1},
}
SETTINGS = [(name, setting) for name, search in registry.searches().items() for setting in search.settings.model_fields]


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_rows_that_differ_in_any_setting_look_different(name, setting):
    kind = registry.searches()[name].settings
    base = {field: 2 for field in kind.named("required")}
    base |= {field: value for field, value in WITH.get(setting, {}).items() if field in kind.model_fields}
    if other := kind.option(setting).only_with:
        base[other] = next(value for value in (2, 0.5, "one") if valid(kind, base | {other: value}))
    rows = {}
    for value in values_of(kind, setting):
        if settings := valid(kind, base | {setting: value}):
            rows[getattr(settings, setting)] = shown(settings)
    assert len(set(rows.values())) == len(rows) >= 2, rows


def valid(kind: type[SearchSettings], values: dict[str, Any]) -> SearchSettings | None:
    try:
        settings = parse(kind, values)
        settings.check_used()
    except ConfigError:
        return None
    return settings


ALIGNED = {("ctc", "ctc-greedy"): {"search": "ctc-greedy"}, ("lvm", "prior-mean"): {"search": "prior-mean"}}


@pytest.mark.parametrize(
    "removal, ctc, lvm",
    [(None, 20.0, 32.0), ("none", 20.0, 30.0), ("words", 21.0, 31.0), ("subwords", 22.0, 32.0)],
)
def test_repetitions_that_alignments_show_are_kept_unless_the_report_says_otherwise(removal, ctc, lvm):
    report_manifest = manifest(ALIGNED)
    rows = [
        row(system, name, bleu + gain, removed=removed, means_repetitions=system == "ctc")
        for system, name, bleu in (("ctc", "ctc-greedy", 20), ("lvm", "prior-mean", 30))
        for removed, gain in (("none", 0), ("words", 1), ("subwords", 2))
    ]
    bleu = {
        line.system: line.figures["bleu"]
        for group in reports.groups(rows, report_manifest, removal)
        for line in group.lines
    }
    assert bleu == {"ctc": ctc, "lvm": lvm}
    # All ways to remove repetitions are in the table.
    worth = tables.removals(reports.results(rows), "test", report_manifest).rows
    assert [line for line in worth if not isinstance(line, GroupRow)] == [
        [PRIOR_MEAN.title, "30.0", "31.0", "32.0"],
        [ONE_PASS.title, "20.0", "21.0", "22.0"],
    ]


def test_a_row_of_another_engine_has_its_marker_in_the_colour_of_its_search():
    own, other = (MANIFEST.decode("teacher", f"greedy{engine}").look for engine in ("", "-ctranslate2-int8"))
    assert other.marker == engines()["ctranslate2"].look.marker != own.marker
    assert other.colour == own.colour


def test_rows_that_chose_other_values_of_one_setting_are_one_curve():
    decodes = {("lvm", name): stepped("delta", steps) for name, steps in (("one", 1), ("two", 2), ("plain", 4))}
    picked = {("lvm", "one"): [{"stop_threshold": 0.1}], ("lvm", "two"): [{"stop_threshold": 0.4}]}
    one, two, plain = (decode.curve for decode in manifest(decodes, picked=picked).decodes)
    assert one == two != plain
