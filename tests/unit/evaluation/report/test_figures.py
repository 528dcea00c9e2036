"""Charts of the report: which rows are drawn, how they are named and numbered, files and the page."""

import functools
import json
import re
from typing import get_args

import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st
from titles import BEAM_4, BLEU, DELTA, DELTA_1, SCORE_1, SCORE_8

from workflow_src.config.resolved import Decode
from workflow_src.evaluation import charts
from workflow_src.evaluation.document import Caption, GroupRow
from workflow_src.evaluation.manifest import OTHER
from workflow_src.evaluation.report import figures, figures_quality, speed_page, tables, trained
from workflow_src.evaluation.report.files import TrainingSummary
from workflow_src.evaluation.report.speed_page import device_words
from workflow_src.evaluation.report.trained import Training
from workflow_src.registry import families, searches
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN
from workflow_src.spec import parse
from workflow_src.spec.fields import Marker

MANIFEST = reports.manifest()


def drawn(chart):
    """Rows of the points of every panel by its title."""
    spec = chart.to_dict()
    return {panel["title"]: _points(panel) for panel in spec.get("concat", [spec])}


def _points(panel):
    layer = next(layer for layer in panel["layer"] if layer["mark"]["type"] == "point")
    return layer.get("data", panel.get("data"))["values"]


def names(chart):
    """Names in the legend, in order."""
    match = re.search(r'"stroke": \{"field": "series", "legend": .*?"domain": (\[.*?\])', json.dumps(chart.to_dict()))
    return json.loads(match[1])


def logs_of(*systems, manifest=MANIFEST):
    entries = [{"step": step, "loss": 1 / step} for step in (1, 2)]
    return [Training(manifest.plan.system(name), 1, TrainingSummary(), entries) for name in systems]


def test_symbols_of_the_legend_are_those_of_the_points(tmp_path):
    """Hollow where points are, and without the dashes of lines."""
    series = [charts.Series("one", "#0072b2"), charts.Series("two", "#0072b2", dash=1, hollow=True)]
    rows = [{"series": one.name, "x": x, "y": x} for one in series for x in (1, 2)]
    charts.save(charts.panels([charts.Panel("", rows, charts.Axis())], series), tmp_path, "a")
    symbols = re.findall(r"role-legend-symbol[^>]*><path ([^>]*)>", (tmp_path / "a.svg").read_text())
    assert [re.search('fill="(.*?)"', symbol)[1] for symbol in symbols] == ["#0072b2", "#ffffff"]
    assert not any("dash" in symbol for symbol in symbols)


def test_files_are_reproducible_and_the_element_of_the_page_is_self_contained(tmp_path):
    colours = [look.colour for look in MANIFEST.palette]
    one, other = (
        charts.save(trained.learning_curves(logs_of("teacher", "ctc")), tmp_path / name, "curves", colours)
        for name in ("a", "b")
    )
    assert one == other
    for name in ("curves.svg", "curves.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg, spec = one.split('<div class="live">')
    colour = MANIFEST.plan.system("teacher").family.look.colour
    for part in (svg, spec):
        assert f"var(--c-{colour[1:]})" in part and colour not in part and "var(--ink)" in part
    assert not re.search(r'(href|src)="(?!#)', one)
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    assert all(name.startswith("curves-") for name in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', svg)) <= ids
    assert "Training loss" in svg and "BLEU on dev" not in svg


def test_there_is_no_picture_without_content():
    """No point, one point, and points that are not finite."""
    teacher, refined = ("teacher", "beam-4"), ("score", "score-1")
    for keys in ((), (teacher,), (refined,)):
        rows = [reports.row(*key, 30.0, latency_ms=5.0) for key in keys]
        groups = reports.groups(rows, MANIFEST, "none")
        times = protocol({key: (5.0, 4.0) for key in keys})
        assert figures_quality.quality_speed(groups) is None and figures.refinement(groups) is None
        assert figures_quality.quality_latencies(groups, reports.speed(protocols=(times,))) is None
        bins = [{"shortest": 1, "longest": 4, "mean_length": 3.0, "latency_ms": 1.0}]
        timed = [reports.timed(*key, 5.0, by_length=bins) for key in keys]
        assert speed_page.time_by_length(reports.speed(*timed), MANIFEST) is None
    assert figures.stopping([]) is None
    log = functools.partial(Training, MANIFEST.plan.system("teacher"), 1, TrainingSummary())
    once = [{"step": 5, "loss": 2.0, "dev_bleu": 1.0}]
    for entries in ([], once, [*once, {"step": 9, "dev_bleu": float("nan")}], [{"step": 0, "loss": 1.0}] * 2):
        assert trained.learning_curves([log(entries)] if entries else []) is None
    # A curve of zeros is not drawn.
    still = [{"step": step, "dev_unreachable": 0.0} for step in (5, 9)]
    assert trained.learning_curves([log(still)]) is None
    # Of two validations there is a curve, and of the loss of one of them there is none.
    assert list(drawn(trained.learning_curves([log([*once, {"step": 9, "dev_bleu": 2.0}])]))) == ["BLEU on dev"]


def test_losses_of_other_units_have_panels_of_their_own():
    """Nats, and 1 - F1 of n-grams, which one family learns too."""
    matching = {"family": "nat", "preset": "tiny", "data": "raw", "init_from": "ctc", "objective": {"ngrams": 2}}
    manifest = reports.manifest(systems=reports.SYSTEMS | {"bigrams": matching})
    chart = trained.learning_curves(logs_of("teacher", "ctc", "bigrams", manifest=manifest))
    panels = {title: {row["series"] for row in rows} for title, rows in drawn(chart).items()}
    assert panels == {"Training loss": {"teacher", "ctc"}, "1 - F1 of n-grams": {"bigrams"}}
    assert set(names(chart)) == {"teacher", "ctc", "bigrams"}


def test_what_was_not_measured_has_no_panel():
    rows = [reports.row("lvm", name, 30.0, validity=None) for name in ("prior-mean", "delta-1", "delta-2")]
    assert list(drawn(figures.refinement(reports.groups(rows, MANIFEST, "none")))) == [BLEU]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=8))
def test_undominated_points_are_those_that_no_other_beats(points):
    """Against the definition, one pair at a time."""

    def beaten(point, other):
        return other[0] <= point[0] and other[1] >= point[1] and other != point

    expected = {point for point in points if not any(beaten(point, other) for other in points)}
    undominated = [points[i] for i in figures_quality.undominated(points)]
    assert set(undominated) == expected and undominated == sorted(expected)


def test_of_many_timed_rows_the_fastest_of_each_system_search_and_library_are_drawn():
    systems = {f"lvm{number}": reports.SYSTEMS["lvm-raw"] for number in range(7)}
    engines = [{}, {"engine": "onnxruntime-float32"}, {"engine": "onnxruntime-int8"}]
    decodes = {
        (system, f"delta-{place}"): reports.stepped("delta", 1, **engine)
        for system in systems
        for place, engine in enumerate(engines)
    }
    manifest = reports.manifest(decodes, systems)
    many = [(decode, reports.timed(*decode.key, 5.0 - int(decode.name[-1]))) for decode in manifest.decodes]
    of_many = [decode for decode, _ in speed_page.rows_to_draw(many)]
    assert [(decode.system.name, decode.engine.key) for decode in of_many] == [
        (system, engine) for system in systems for engine in ("eager", "onnxruntime-int8")
    ]


def test_time_against_length_leaves_out_what_distinguishes_no_rows():
    """Long labels would leave no room for the curves."""
    long = reports.stepped("score", 8) | {"step_size": 0.5}
    settings = [long, long | {"lengthening": 0.1}]
    decode_names = [f"score{parse(Decode, row_settings).values.name_parts()}" for row_settings in settings]
    manifest = reports.manifest(
        {("score", name): row_settings for name, row_settings in zip(decode_names, settings, strict=True)}
    )
    bins = [{"shortest": n, "longest": n + 1, "mean_length": n, "latency_ms": 1.0 * n} for n in (1, 5)]
    rows = [reports.timed("score", name, 1.0, by_length=bins) for name in decode_names]
    alone, longer = f"score: {SCORE_8}", f"score: {SCORE_8} (lengthening 0.1)"
    for few, expected in ((1, [alone]), (2, [alone, longer])):
        chart = speed_page.time_by_length(reports.speed(*rows[:few]), manifest)
        assert names(chart) == expected
        ((_, points),) = drawn(chart).items()
        assert [(row["x"], row["y"]) for row in points if row["series"] == alone] == [(1, 1), (5, 5)]


def test_a_row_with_chosen_settings_is_drawn_where_its_search_has_no_other():
    chosen = {"search": "beam", "beam": 4, "length_penalty": 0.5}
    picked = {("teacher", "chosen"): [{"length_penalty": 0.5}]}
    bins = [{"shortest": n, "longest": n + 1, "mean_length": n, "latency_ms": 1.0 * n} for n in (1, 5)]

    def lines(decodes) -> int:
        speed = reports.speed(*(reports.timed(*key, 1.0, by_length=bins) for key in decodes))
        manifest = reports.manifest(decodes, picked=picked)
        return len(names(speed_page.time_by_length(speed, manifest)))

    alone = {("teacher", "greedy"): {"search": "greedy"}, ("teacher", "chosen"): chosen}
    assert lines(alone) == 2
    assert lines(alone | {("teacher", "beam-4"): {"search": "beam", "beam": 4}}) == 2


def table(manifest):
    """A table in which every row takes as many milliseconds as its place, and reaches 30 BLEU and more."""
    rows = [
        reports.row(decode.system.name, decode.name, 30 + (number * 7 % 11), latency_ms=1.0 + 0.4 * number)
        for number, decode in enumerate(manifest.decodes)
    ]
    return reports.groups(rows, manifest, "none")


def test_rows_that_differ_in_the_series_of_their_search_are_a_curve():
    sizes = {("score", f"score-{n}-half"): reports.stepped("score", n) | {"step_size": 0.5} for n in (1, 4)}
    beams = {("teacher", f"beam-{n}"): {"search": "beam", "beam": n} for n in (8, 2)}
    groups = table(reports.manifest(reports.DECODES | sizes | beams))
    curves = [(curve.twin, [line.name for line in curve.lines]) for curve in figures.curves_of(groups)]
    assert (0, ["score-1", "score-2", "score-4"]) in curves and (0, ["score-1-half", "score-4-half"]) in curves
    assert (0, ["beam-2", "beam-4", "beam-8"]) in curves and (0, ["beam-4-ctranslate2-int8"]) in curves
    assert (1, ["delta-1", "delta-2", "delta-4"]) in curves and (1, ["prior-mean"]) in curves
    # Points of one curve are joined, those of others are not.
    (points,) = drawn(figures_quality.quality_speed(groups)).values()
    joined: dict = {}
    for point in points:
        joined.setdefault(point["curve"], []).append(point["name"].partition(" ")[0])
    assert len(joined) == len(curves)
    assert sorted(map(len, joined.values())) == sorted(len(lines) for _, lines in curves)


def test_the_legend_says_titles():
    search = {"search": "latent-search", "lengths": 2, "samples": 2, "steps": 0, "rescorer": "teacher"}
    groups = table(reports.manifest(reports.DECODES | {("lvm", "searched"): search}))
    titles = ["autoregressive", "autoregressive, CTranslate2", PRIOR_MEAN.title, DELTA, "latent search", "score"]
    # Two systems are latent-variable models: points of the second one are hollow and have its name.
    assert names(figures_quality.quality_speed(groups)) == [
        *titles,
        f"{PRIOR_MEAN.title} · lvm-raw",
        f"{DELTA} · lvm-raw",
    ]
    alone = [group for group in groups if group.head.name != "lvm-raw"]
    assert names(figures_quality.quality_speed(alone)) == titles
    for some, hollow in ((groups, True), (alone, False)):
        assert bool(figures_quality.notes(some, figures_quality.own_latencies(some))["Hollow markers"]) == hollow
        assert (charts.PAPER in json.dumps(figures_quality.quality_speed(some).to_dict())) == hollow


def test_no_two_names_of_the_legend_look_alike():
    """Points of another engine have its marker, whatever their search."""
    exported = {
        ("lvm", f"{name}-onnx"): settings | {"engine": "onnxruntime"}
        for name, settings in (("delta", reports.stepped("delta", 1)), ("prior-mean", {"search": "prior-mean"}))
    }
    groups = table(reports.manifest(reports.DECODES | exported))
    series = figures.series_of(figures.curves_of(groups)).values()
    looks = {one.name: (one.colour, one.marker, one.hollow) for one in series}
    assert len(set(looks.values())) == len(looks)


def test_every_marker_has_a_shape():
    assert set(get_args(Marker)) == set(charts.SHAPES)


def test_what_declares_no_colour_has_none_of_those_that_are_declared():
    looks = [member.look for member in (*searches().values(), *families().values())]
    assert OTHER.colour not in {look.colour for look in looks}


def test_refinement_by_passes_is_drawn_over_its_steps():
    """One pass has no refinement yet, as no step has none."""
    passes = {("inat", f"iterative-refinement-{n}"): {"search": "iterative-refinement", "passes": n} for n in (1, 2, 4)}
    steps = {("lvm", f"delta-{n}"): reports.stepped("delta", n) for n in (1, 4)}
    manifest = reports.manifest(passes | steps, reports.SYSTEMS | {"inat": reports.INAT})
    rows = [reports.row(decode.system.name, decode.name, 20.0 + decode.value) for decode in manifest.decodes]
    (points,) = drawn(figures.refinement(reports.groups(rows, manifest, removed="none"))).values()
    by_series: dict = {}
    for point in points:
        by_series.setdefault(point["series"], []).append((point["x"], point["y"]))
    assert sorted(by_series.values()) == [[(0, 21), (1, 22), (3, 24)], [(1, 21), (4, 24)]]


def points_of(groups):
    return {(line.figures["latency_ms"], line.figures["bleu"]): line for group in groups for line in group.lines}


@pytest.mark.parametrize("further", [0, 18])
def test_points_carry_the_numbers_of_the_table_and_many_those_that_no_other_beats(further):
    search = {"search": "latent-search", "lengths": 2, "samples": 2, "steps": 1, "refinement": "delta"}
    decodes = {("lvm", f"latent-search-{n}"): search | {"lengths": n} for n in range(2, 2 + further)}
    manifest = reports.manifest(reports.DECODES | decodes)
    groups = table(manifest)
    points = points_of(groups)
    assert (len(points) > figures_quality.CROWDED) == bool(further)
    best = {p for p in points if not any(o[0] <= p[0] and o[1] >= p[1] and o != p for o in points)}
    shown = tables.block(groups, manifest, Caption(""), numbered=True)
    numbers = {}
    for row in shown.rows:
        if not isinstance(row, GroupRow):
            numbers[len(numbers) + 1] = (row[0].text, row[0].note)
    assert [note for _, note in numbers.values()] == [f"#{number}" for number in numbers]
    (rows,) = drawn(figures_quality.quality_speed(groups)).values()
    assert {(row["x"], row["y"]) for row in rows} == set(points)
    for row in rows:
        line = points[row["x"], row["y"]]
        number = int(row["name"].partition(" ")[0].removeprefix("#"))
        assert numbers[number][0] == line.label and row["name"] == f"#{number} {line.system}: {line.label}"
        assert row["number"] == (str(number) if not further or (row["x"], row["y"]) in best else "")


def protocol(times, device="cpu", threads=1, batch=64):
    """A protocol of speed.json: milliseconds one at a time and in batches by system and name."""
    rows = [
        reports.timed(*key, alone, sentences_per_second=1000 / batched, batch=batch)
        for key, (alone, batched) in times.items()
    ]
    name = "A GPU" if device == "cuda" else None
    return reports.measurement(*rows, device=device, device_name=name, threads=threads)


def test_every_measured_latency_has_a_panel():
    """One sentence at a time, and in batches, under each protocol; points where the times say."""
    cpu = {("teacher", "beam-4"): (10.0, 4.0), ("lvm", "delta-1"): (5.0, 8.0), ("score", "score-1"): (4.0, 2.0)}
    gpu = {("teacher", "beam-4"): (20.0, 0.4), ("lvm", "delta-1"): (3.0, 0.2)}
    speed = reports.speed(protocols=(protocol(gpu, "cuda", batch=512), protocol(cpu, threads=2)))
    bleu = {("teacher", "beam-4"): 40.0, ("lvm", "delta-1"): 33.0, ("score", "score-1"): 34.0}
    groups = reports.groups([reports.row(*key, score) for key, score in bleu.items()], MANIFEST, "none")
    panels = drawn(figures_quality.quality_latencies(groups, speed))
    expected = {
        "A GPU, one at a time": {key: alone for key, (alone, _) in gpu.items()},
        "A GPU, in batches of 512": {key: batched for key, (_, batched) in gpu.items()},
        "2 CPU threads, one at a time": {key: alone for key, (alone, _) in cpu.items()},
        "2 CPU threads, in batches of 64": {key: batched for key, (_, batched) in cpu.items()},
    }
    assert list(panels) == [f"{title}: {BLEU}" for title in expected]
    labels = {("teacher", "beam-4"): BEAM_4, ("lvm", "delta-1"): DELTA_1, ("score", "score-1"): SCORE_1}
    for title, times in expected.items():
        rows = panels[f"{title}: {BLEU}"]
        points = {row["name"].partition(" ")[2]: (pytest.approx(row["x"]), row["y"]) for row in rows}
        assert points == {f"{key[0]}: {labels[key]}": (ms, bleu[key]) for key, ms in times.items()}
    # Rows that another beats in a panel have no number there.
    numbered = [[row["name"] for row in rows if row["number"]] for rows in panels.values()]
    assert [len(names) for names in numbered] == [2, 2, 2, 2]
    assert any("lvm" in name for name in numbered[0]) and not any("lvm" in name for name in numbered[2])


def test_batches_that_differ_are_named_by_their_range_and_without_speed_there_is_no_picture():
    few, many = (protocol({("lvm", name): (5.0, 4.0)}, batch=batch).rows for name, batch in (("a", 8), ("b", 64)))
    measurement = reports.measurement(*few, *many)
    assert list(figures_quality.latencies(reports.speed(protocols=(measurement,)))) == [
        f"{device_words(measurement.protocol)}, one at a time",
        f"{device_words(measurement.protocol)}, in batches of 8–64",
    ]
    unknown_rows = protocol({("gone", "row"): (1.0, 1.0)})
    for nothing in (
        None,
        reports.speed(),
        *(reports.speed(protocols=(measurement,)) for measurement in (protocol({}), unknown_rows)),
    ):
        assert figures_quality.quality_latencies(table(MANIFEST), nothing) is None
