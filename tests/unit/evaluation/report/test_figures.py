"""Pictures: labels apart, nothing from a network, reproducible bytes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.evaluation.report import figures, figures_quality, figures_speed


@given(st.lists(st.floats(0, 100), max_size=8), st.floats(0.1, 12))
def test_labels_are_moved_apart_in_order_and_inside(positions, gap):
    moved = figures.apart(positions, gap, 0, 100)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    assert all(moved[b] - moved[a] >= gap - 1e-9 for a, b in zip(order, order[1:], strict=False))
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in moved)


@given(st.lists(st.integers(0, 9), max_size=6, unique=True))
def test_labels_that_do_not_touch_stay(positions):
    assert figures.apart([10.0 * p for p in positions], 5, 0, 100) == pytest.approx([10.0 * p for p in positions])


def test_files_are_reproducible_and_the_copy_for_the_page_is_self_contained(tmp_path):
    logs = [
        {
            "system": "teacher",
            "family": "transformer",
            "seed": 1,
            "entries": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}],
        }
    ]
    inline = figures.save(figures.learning_curves(logs), tmp_path / "a", "curves")
    again = figures.save(figures.learning_curves(logs), tmp_path / "b", "curves")
    assert inline == again
    for name in ("curves.svg", "curves.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert inline.startswith("<svg") and "<metadata" not in inline and "var(--ink)" in inline
    assert not re.search(r'(href|src)="(?!#)', inline)
    ids = set(re.findall(r'\bid="([^"]+)"', inline))
    assert all(name.startswith("curves-") for name in ids)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', inline)) <= ids
    assert "Training loss" in inline and "BLEU on dev" not in inline


def test_there_is_a_picture_that_says_so_when_there_is_nothing_to_draw(tmp_path):
    for figure in (figures.learning_curves([]), figures_quality.quality_speed([]), figures.refinement([])):
        assert re.search("No |not measured", figure.texts[0].get_text())


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=8))
def test_undominated_points_are_those_that_no_other_beats(points):
    """Against the definition, one pair at a time."""

    def beaten(one, other):
        return other[0] <= one[0] and other[1] >= one[1] and other != one

    expected = {point for point in points if not any(beaten(point, other) for other in points)}
    found = [points[i] for i in figures_quality.undominated(points)]
    assert set(found) == expected and found == sorted(expected)


def timed(system, search, steps, engine, milliseconds):
    groups = [{"mean_length": 5.0, "latency_ms": milliseconds}]
    name, _, compute_type = engine.partition("-")
    return {"system": system, "search": search, "steps": steps, "engine": name, "compute_type": compute_type,
            "latency_ms": milliseconds, "by_length": groups}  # fmt: skip


def test_of_many_timed_rows_the_fastest_of_each_system_search_and_library_are_drawn():
    few = [timed("lvm", "delta", steps, "continuum", steps) for steps in (1, 2, 4)]
    assert figures_speed.shown(few) == few[:1]
    engines = ("continuum", "onnxruntime-float32", "onnxruntime-int8")
    many = [timed(f"lvm{i}", "delta", 1, engine, 5.0 - place) for i in range(7) for place, engine in enumerate(engines)]
    drawn = figures_speed.shown(many)
    assert [(row["system"], row["engine"], row["compute_type"]) for row in drawn] == [
        (f"lvm{i}", *engine) for i in range(7) for engine in (("continuum", ""), ("onnxruntime", "int8"))
    ]
