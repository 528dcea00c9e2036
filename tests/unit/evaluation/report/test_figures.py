"""Pictures: labels spread apart, nothing from a network, reproducible bytes."""

import functools
import itertools
import re

import numpy as np
import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image
from matplotlib.figure import Figure
from matplotlib.text import Text
from titles import BEAM_4, BLEU, DELTA, DELTA_1, SCORE_1, SCORE_2, SCORE_8

from workflow_src.config.resolved import Decode
from workflow_src.evaluation.report import (
    figures,
    figures_latencies,
    figures_learning,
    figures_quality,
    figures_speed,
)
from workflow_src.evaluation.report.speed_page import device_words
from workflow_src.searches.prior_mean import SEARCH as PRIOR_MEAN
from workflow_src.spec import parse

MANIFEST = reports.manifest()


@given(st.lists(st.floats(0, 100), max_size=8), st.floats(0.1, 12))
def test_labels_are_moved_apart_in_order_and_inside(positions, gap):
    moved = figures.spread_apart(positions, gap, 0, 100)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    assert all(moved[b] - moved[a] >= gap - 1e-9 for a, b in itertools.pairwise(order))
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in moved)


@given(st.lists(st.integers(0, 9), max_size=6, unique=True))
def test_labels_that_do_not_touch_stay(positions):
    spread = [10.0 * p for p in positions]
    assert figures.spread_apart(spread, 5, 0, 100) == pytest.approx(spread)


def test_labels_are_moved_as_little_as_can_be():
    assert figures.spread_apart([5.0, 5.0, 5.0], 2, -100, 100) == pytest.approx([3, 5, 7])
    # Two that touch share what has to be moved; the third is far enough from them.
    assert figures.spread_apart([30.0, 0.0, 1.0], 4, -100, 100) == pytest.approx([30, -1.5, 2.5])
    draw = np.random.default_rng(0)
    positions = draw.uniform(0, 30, 8)
    moved = np.array(figures.spread_apart(positions.tolist(), 4, 0, 40))
    order = np.argsort(positions)
    steps = 4 * np.arange(8)
    for near in (True, False) * 500:
        # Any other places that are far enough from each other: near these, and anywhere.
        levels = moved[order] - steps + draw.normal(0, 0.1, 8) if near else draw.uniform(0, 12, 8)
        alternative = np.empty(8)
        alternative[order] = np.sort(levels.clip(0, 12)) + steps
        assert ((alternative - positions) ** 2).sum() >= ((moved - positions) ** 2).sum() - 1e-9


def test_labels_that_stand_beside_each_other_need_not_be_moved_apart():
    assert figures.columns([(5, 9), (0, 3), (2, 4), (8.5, 12), (4, 5)]) == [[1, 2], [4], [0, 3]]
    assert figures.columns([]) == []


def test_files_are_reproducible_and_the_copy_for_the_page_is_self_contained(tmp_path):
    system = MANIFEST.plan.system("teacher")
    logs = [figures_learning.Log(system, 1, [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}])]
    colours = [look.colour for look in MANIFEST.palette]
    inline = figures.save(figures_learning.learning_curves(logs), tmp_path / "a", "curves", colours)
    second = figures.save(figures_learning.learning_curves(logs), tmp_path / "b", "curves", colours)
    assert f"var(--c-{system.family.look.colour[1:]})" in inline and system.family.look.colour not in inline
    assert inline == second
    for name in ("curves.svg", "curves.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert inline.startswith("<svg") and "<metadata" not in inline and "var(--ink)" in inline
    assert not re.search(r'(href|src)="(?!#)', inline)
    ids = set(re.findall(r'\bid="([^"]+)"', inline))
    assert all(name.startswith("curves-") for name in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', inline)) <= ids
    assert "Training loss" in inline and "BLEU on dev" not in inline


def test_there_is_no_picture_without_content():
    """No point, one point, and points that are not finite."""
    teacher, refined = ("teacher", "beam-4"), ("score", "score-1")
    for keys in ((), (teacher,), (refined,)):
        rows = [reports.row(*key, 30.0, latency_ms=5.0) for key in keys]
        groups = reports.groups(rows, MANIFEST, "none")
        times = protocol({key: (5.0, 4.0) for key in keys})
        assert figures_quality.quality_speed(groups) is None and figures.refinement(groups) is None
        assert figures_latencies.quality_latencies(groups, reports.speed(protocols=(times,))) is None
        bins = [{"shortest": 1, "longest": 4, "mean_length": 3.0, "latency_ms": 1.0}]
        timed = [reports.timed(*key, 5.0, by_length=bins) for key in keys]
        assert figures_speed.time_by_length(reports.speed(*timed), MANIFEST) is None
    assert figures.stopping([]) is None
    log = functools.partial(figures_learning.Log, MANIFEST.plan.system("teacher"), 1)
    once = [{"step": 5, "loss": 2.0, "dev_bleu": 1.0}]
    for entries in ([], once, [*once, {"step": 9, "dev_bleu": float("nan")}], [{"step": 0, "loss": 1.0}] * 2):
        assert figures_learning.learning_curves([log(entries)] if entries else []) is None
    # A curve of zeros is not drawn.
    still = [{"step": step, "dev_unreachable": 0.0} for step in (5, 9)]
    assert figures_learning.learning_curves([log(still)]) is None
    # Of two validations there is a curve, and of the loss of one of them there is none.
    figure = figures_learning.learning_curves([log([*once, {"step": 9, "dev_bleu": 2.0}])])
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == ["BLEU on dev"]


def test_losses_of_other_units_have_panels_of_their_own():
    """Nats, and 1 - F1 of n-grams, which one family learns too."""
    matching = {"family": "nat", "preset": "tiny", "data": "raw", "init_from": "ctc", "objective": {"ngrams": 2}}
    plan = reports.manifest(systems=reports.SYSTEMS | {"bigrams": matching}).plan
    entries = [{"step": step, "loss": 1 / step} for step in (1, 2)]
    logs = [figures_learning.Log(plan.system(name), 1, entries) for name in ("teacher", "ctc", "bigrams")]
    panels = {axes.get_title(loc="left"): len(axes.lines) for axes in figures_learning.learning_curves(logs).axes}
    assert panels == {"Training loss": 2, "1 - F1 of n-grams": 1}


def test_what_was_not_measured_has_no_panel():
    rows = [reports.row("lvm", name, 30.0, validity=None) for name in ("prior-mean", "delta-1", "delta-2")]
    groups = reports.groups(rows, MANIFEST, "none")
    assert [axes.get_title(loc="left") for axes in figures.refinement(groups).axes] == [BLEU]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=8))
def test_undominated_points_are_those_that_no_other_beats(points):
    """Against the definition, one pair at a time."""

    def beaten(point, other):
        return other[0] <= point[0] and other[1] >= point[1] and other != point

    expected = {point for point in points if not any(beaten(point, other) for other in points)}
    undominated = [points[i] for i in figures_quality.undominated(points)]
    assert set(undominated) == expected and undominated == sorted(expected)


def timed(decode, milliseconds):
    return figures_speed.TimedDecode(decode, milliseconds, ((5.0, milliseconds),))


def test_of_many_timed_rows_the_fastest_of_each_system_search_and_library_are_drawn():
    few = [timed(MANIFEST.decode("lvm", f"delta-{steps}"), steps) for steps in (1, 2, 4)]
    assert figures_speed.rows_to_draw(few) == few[:1]
    systems = {f"lvm{i}": reports.SYSTEMS["lvm-raw"] for i in range(7)}
    engines = [{}] + [{"engine": f"onnxruntime-{kind}"} for kind in ("float32", "int8")]
    decodes = {
        (system, f"delta-{place}"): reports.stepped("delta", 1, **engine)
        for system in systems
        for place, engine in enumerate(engines)
    }
    many = [timed(decode, 5.0 - int(decode.name[-1])) for decode in reports.manifest(decodes, systems).decodes]
    drawn = [row.decode for row in figures_speed.rows_to_draw(many)]
    assert [(decode.system.name, decode.engine.key) for decode in drawn] == [
        (f"lvm{i}", engine) for i in range(7) for engine in ("eager", "onnxruntime-int8")
    ]


def test_time_against_length_leaves_out_what_distinguishes_no_rows():
    """Long labels would leave no room for the curves."""
    long = reports.stepped("score", 8) | {"step_size": 0.5}
    settings = [long, long | {"lengthening": 0.1}]
    names = [f"score{parse(Decode, row_settings).values.name_parts()}" for row_settings in settings]
    manifest = reports.manifest(
        {("score", name): row_settings for name, row_settings in zip(names, settings, strict=True)}
    )
    bins = [{"shortest": n, "longest": n + 1, "mean_length": n, "latency_ms": 1.0 * n} for n in (1, 5)]
    rows = [reports.timed("score", name, 1.0, by_length=bins) for name in names]
    alone, longer = f"score: {SCORE_8}", f"score: {SCORE_8} (lengthening 0.1)"
    for few, expected in ((1, [alone]), (2, [alone, longer])):
        figure = figures_speed.time_by_length(reports.speed(*rows[:few]), manifest)
        assert [text.get_text() for text in figure.axes[0].texts] == expected


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


def test_the_legend_says_titles():
    search = {"search": "latent-search", "lengths": 2, "samples": 2, "steps": 0, "rescorer": "teacher"}
    groups = table(reports.manifest(reports.DECODES | {("lvm", "searched"): search}))
    entries = figures_quality.legend_entries(figures.curves_of(groups))
    titles = ["autoregressive", PRIOR_MEAN.title, DELTA, "latent search", "score", "CTranslate2"]
    # Two systems are latent-variable models: points of the second one are hollow.
    assert list(entries) == [*titles, figures_quality.HOLLOW]
    assert entries[figures_quality.HOLLOW]["markerfacecolor"] == "none"
    alone = [group for group in groups if group.key != "lvm-raw"]
    assert list(figures_quality.legend_entries(figures.curves_of(alone))) == titles


@pytest.mark.parametrize(
    ("inner", "count", "length"), [(False, 1, 44), (False, 14, 44), (True, 14, 44), (True, 3, 20), (True, 14, 4)]
)
def test_the_legend_stays_in_the_picture(monkeypatch, inner, count, length):
    text = "prior mean (Latents of the source's length), as long as any"
    entries = {f"{number} {text[:length]}": {"marker": "o"} for number in range(count)}
    monkeypatch.setattr(figures_quality, "legend_entries", lambda _: entries)
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    panel = figure.subfigures(2, 1)[0] if inner else figure
    figures_quality.legend(panel.subplots(), [])
    figure.draw_without_rendering()
    box, page = panel.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= 0 and box.x1 <= page.width and box.y0 >= 0


def test_pictures_leave_out_what_stands_in_brackets_where_rows_stay_apart():
    half = reports.stepped("score", 8) | {"step_size": 0.5}
    quarter = reports.stepped("score", 1) | {"step_size": 0.25}
    decodes = reports.DECODES | {("score", "mine"): half, ("score", "other"): quarter}
    lines = [line for group in table(reports.manifest(decodes)) for line in group.lines]
    short = figures_quality.short_labels(lines)
    labels_by_name = {line.name: short[id(line)] for line in lines if line.system == "score"}
    assert labels_by_name["mine"] == SCORE_8 and labels_by_name["score-2"] == SCORE_2
    assert (labels_by_name["other"], labels_by_name["score-1"]) == (f"{SCORE_1} (other)", SCORE_1)


def test_pictures_distinguish_rows_by_what_not_all_of_them_have():
    half = reports.stepped("score", 8) | {"step_size": 0.5}
    settings = [half, half | {"lengthening": 0.1}, half | {"lengthening": 0.2}]
    names = [f"score{parse(Decode, row_settings).values.name_parts()}" for row_settings in settings]
    manifest = reports.manifest(
        reports.DECODES | {("score", name): row_settings for name, row_settings in zip(names, settings, strict=True)}
    )
    lines = [line for group in table(manifest) for line in group.lines]
    short = figures_quality.short_labels(lines)
    short_by_name = {line.name: short[id(line)] for line in lines}
    assert [short_by_name[name] for name in names] == [
        SCORE_8,
        f"{SCORE_8} (lengthening 0.1)",
        f"{SCORE_8} (lengthening 0.2)",
    ]
    labels = {line.name: line.label for line in lines}
    assert [labels[name] for name in names] == [
        f"{SCORE_8} (step size 0.5)",
        f"{SCORE_8} (step size 0.5, lengthening 0.1)",
        f"{SCORE_8} (step size 0.5, lengthening 0.2)",
    ]


def test_refinement_by_passes_is_drawn_over_its_steps():
    """One pass has no refinement yet, as no step has none."""
    passes = {("inat", f"iterative-refinement-{n}"): {"search": "iterative-refinement", "passes": n} for n in (1, 2, 4)}
    steps = {("lvm", f"delta-{n}"): reports.stepped("delta", n) for n in (1, 4)}
    manifest = reports.manifest(passes | steps, reports.SYSTEMS | {"inat": reports.INAT})
    rows = [reports.row(decode.system.name, decode.name, 20.0 + decode.value) for decode in manifest.decodes]
    (axes,) = figures.refinement(reports.groups(rows, manifest, removed="none")).axes
    assert sorted(line.get_xdata().tolist() for line in axes.get_lines()) == [[0, 1, 3], [1, 4]]


def test_text_of_a_file_ends_inside_of_it(tmp_path):
    """Labels at the ends of lines stand outside of the panels, and panels leave them just the room that they take."""
    figures.save(figures.refinement(table(MANIFEST)), tmp_path, "refinement")
    ink = image.imread(tmp_path / "refinement.png")[..., :3].min(-1) < 1
    # Matplotlib leaves a twenty-fifth of an inch white on all sides; letters are smoothed over a pixel or two.
    border = figures.DPI // 25 - 3
    assert ink.any()
    assert not any(edge.any() for edge in (ink[:border], ink[-border:], ink[:, :border], ink[:, -border:]))


def points_of(groups):
    return {(line.figures["latency_ms"], line.figures["bleu"]): line for group in groups for line in group.lines}


def test_every_point_has_a_number_and_stands_in_the_list_the_best_first():
    groups = table(MANIFEST)
    points = sorted(points_of(groups), key=lambda point: (-point[1], point[0]))
    figure = figures_quality.quality_speed(groups)
    numbers = {text.get_text(): text.xy for text in figure.axes[0].texts}
    assert not figures_quality.crowded(groups)
    assert numbers == {str(number): point for number, point in enumerate(points, 1)}
    texts = [text.get_text() for text in figure.subfigs[1].texts]
    assert texts[::2] == list(numbers) and all(
        f"in {x:.3g} ms)" in text for (x, _), text in zip(points, texts[1::2], strict=True)
    )


@pytest.mark.parametrize("rows", [9, 40])
def test_numbers_on_the_grey_line_touch_no_point(rows):
    """Measured in what is drawn, at the resolution of the files."""
    search = {"search": "latent-search", "lengths": 2, "samples": 2, "steps": 1, "refinement": "delta"}
    further_decodes = {("lvm", f"latent-search-{n}"): search | {"lengths": n} for n in range(2, rows)}
    groups = table(reports.manifest(reports.DECODES | further_decodes))
    points = list(points_of(groups))
    best = [points[i] for i in figures_quality.undominated(points)]
    figure = figures_quality.quality_speed(groups)
    figure.set_dpi(figures.DPI)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    numbers = [text for text in axes.texts if text.xy in best]
    assert len(numbers) == len(best) > 2
    for text in numbers:
        box = Text.get_window_extent(text)
        assert not any(box.contains(*place) for place in axes.transData.transform(points)), text.get_text()
        assert figure.bbox.x0 <= box.x0 and box.y1 <= figure.bbox.y1


def test_in_a_crowded_picture_the_rows_that_no_other_beats_have_numbers_and_a_list():
    search = {"search": "latent-search", "lengths": 2, "samples": 2, "steps": 1, "refinement": "delta"}
    further_decodes = {("lvm", f"latent-search-{n}"): search | {"lengths": n} for n in range(2, 20)}
    groups = table(reports.manifest(reports.DECODES | further_decodes))
    assert figures_quality.crowded(groups)
    points = points_of(groups)
    best = [p for p in points if not any(o[0] <= p[0] and o[1] >= p[1] and o != p for o in points)]
    best.sort(key=lambda point: -point[1])
    figure = figures_quality.quality_speed(groups)
    (axes,), texts = figure.axes, [text.get_text() for text in figure.subfigs[1].texts]
    assert len(best) > 2 and texts[::2] == [str(number) for number in range(1, len(best) + 1)]
    for point, text in zip(best, texts[1::2], strict=True):
        assert text == f"{points[point].system}: {points[point].label} ({point[1]:.1f} {BLEU} in {point[0]:.3g} ms)"
    # A number stands at its point, and other rows have none.
    numbers = {text.get_text(): text.xy for text in axes.texts}
    assert numbers == {str(number): point for number, point in enumerate(best, 1)}


def test_a_list_goes_on_in_another_line_where_it_is_too_wide():
    line = next(line for group in table(MANIFEST) for line in group.lines)
    lines = figures_quality.list_lines([(line, "beam 4, " * 40), (line, "greedy")])
    assert [number for number, _, _ in lines if number] == ["1", "2"] and len(lines) > 3
    figure = Figure(figsize=(7.2, 3))
    figures_quality.write_list(figure, lines)
    assert all(text.get_window_extent().x1 < figure.bbox.x1 for text in figure.texts)


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
    rows = [reports.row(*key, score) for key, score in bleu.items()]
    groups = reports.groups(rows, MANIFEST, "none")
    figure = figures_latencies.quality_latencies(groups, speed)
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}
    expected = {
        "A GPU, one at a time": {key: alone for key, (alone, _) in gpu.items()},
        "A GPU, in batches of 512": {key: batched for key, (_, batched) in gpu.items()},
        "2 CPU threads, one at a time": {key: alone for key, (alone, _) in cpu.items()},
        "2 CPU threads, in batches of 64": {key: batched for key, (_, batched) in cpu.items()},
    }
    assert list(panels) == list(expected)
    for title, times in expected.items():
        drawn = {tuple(point) for line in panels[title].get_lines() for point in np.round(line.get_xydata(), 9)}
        assert drawn == {(round(ms, 9), bleu[key]) for key, ms in times.items()}
    # Rows that another beats in every panel have no number; in one panel is enough for one.
    listed = [text.get_text() for text in figure.subfigs[1].texts]
    assert listed == ["1", f"teacher: {BEAM_4}", "2", f"score: {SCORE_1}", "3", f"lvm: {DELTA_1}"]
    numbers = {
        title: sorted(text.get_text() for text in axes.texts if text.get_text()) for title, axes in panels.items()
    }
    assert numbers == {
        "A GPU, one at a time": ["1", "3"],
        "A GPU, in batches of 512": ["1", "3"],
        "2 CPU threads, one at a time": ["1", "2"],
        "2 CPU threads, in batches of 64": ["1", "2"],
    }


def test_batches_that_differ_are_named_by_their_range_and_without_speed_there_is_no_picture():
    few, many = (protocol({("lvm", name): (5.0, 4.0)}, batch=batch).rows for name, batch in (("a", 8), ("b", 64)))
    measurement = reports.measurement(*few, *many)
    assert [latency.title for latency in figures_latencies.latencies(reports.speed(protocols=(measurement,)))] == [
        f"{device_words(measurement.protocol)}, one at a time",
        f"{device_words(measurement.protocol)}, in batches of 8–64",
    ]
    unknown_rows = protocol({("gone", "row"): (1.0, 1.0)})
    for nothing in (
        None,
        reports.speed(),
        *(reports.speed(protocols=(measurement,)) for measurement in (protocol({}), unknown_rows)),
    ):
        assert figures_latencies.quality_latencies(table(MANIFEST), nothing) is None


@given(st.floats(0.01, 100), st.floats(1, 1e4), st.integers(3, 9))
def test_a_narrow_panel_has_few_ticks(low, ratio, most):
    axes = Figure().subplots()
    axes.set_xscale("log")
    figures.log_ticks(axes.xaxis, [low, low * ratio], axes.set_xlim, most)
    ticks = axes.xaxis.get_major_locator()()
    assert len(ticks) <= most or np.allclose(np.log10(ticks), np.round(np.log10(ticks)))
    assert len(ticks) > 0 or ratio < 10
