"""Charts: declared once with Altair, drawn as files without a browser, and interactive in the page.

A chart is of rows (plain dictionaries) with a `series`; series are in a legend, which shows and hides them. Colours are
those of Okabe and Ito, which are distinct to people with any colour vision; series differ in shape or dashes too. Texts
of a user are values of rows, titles or names of series: none is an expression, a name of a field, or markup.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from workflow_src.evaluation.manifest import colour_class
from workflow_src.records.atomic import atomic
from workflow_src.spec import Look

INK = "#1b1b1d"
MUTED = "#6f6f77"
RULE = "#d9d9de"
PAPER = "#fdfcf9"
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper"}
# Pixels of PNG files for one of a chart.
SCALE = 2
DASHES = ([1, 0], [6, 3], [1.5, 2], [6, 2, 1.5, 2])
# Shapes of Vega by the markers of `spec.Look`; paths are within a square of side 2 around the origin.
SHAPES = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "d": "M0,-1L.6,0L0,1L-.6,0Z",
    "^": "triangle-up",
    "v": "triangle-down",
    ">": "triangle-right",
    "<": "triangle-left",
    "P": "cross",
    "X": "M-.9,-.5L-.5,-.9L0,-.4L.5,-.9L.9,-.5L.4,0L.9,.5L.5,.9L0,.4L-.5,.9L-.9,.5L-.4,0Z",
    "*": "M0,-1L.24,-.31L.95,-.31L.38,.12L.59,.81L0,.39L-.59,.81L-.38,.12L-.95,-.31L-.24,-.31Z",
    "p": "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z",
    "h": "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z",
}
# Whole numbers on an axis that have a tick each.
FEW = 10
# A letter's width in pixels: an upper bound of the average. Columns of legends are as wide as their longest name.
LETTER = 6.2
CONFIG: dict[str, Any] = {
    "font": "DejaVu Sans, Liberation Sans, sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "domainColor": RULE,
        "tickColor": RULE,
        "gridColor": RULE,
        "gridOpacity": 0.6,
        "labelFontSize": 10,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False},
    "title": {"anchor": "start", "color": INK, "fontSize": 12, "fontWeight": "normal", "frame": "group"},
    "text": {"color": INK, "fontSize": 10},
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 11,
        "labelLimit": 0,
        "symbolLimit": 0,
        "symbolSize": 70,
        "symbolStrokeWidth": 1.5,
    },
}

Chart = alt.TopLevelMixin


@dataclasses.dataclass(frozen=True)
class Series:
    """How rows of a `series` of this name are drawn; `marker` as in `spec.Look`, `dash` an index of `DASHES`."""

    name: str
    colour: str
    marker: str = "o"
    dash: int = 0
    hollow: bool = False


def series_apart(looks: Mapping[str, Look]) -> list[Series]:
    """Series by their names; those that share colour and marker differ in dashes, and all but the first are hollow."""
    series: list[Series] = []
    drawn: list[tuple[str | None, str | None]] = []
    for name, look in looks.items():
        twin = drawn.count((look.colour, look.marker))
        drawn.append((look.colour, look.marker))
        series.append(Series(name, look.colour or "", look.marker or "o", twin, hollow=twin > 0))
    return series


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis: its title, whether it is a log scale, and whether its ticks are whole numbers."""

    title: str = ""
    log: bool = False
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    """A panel: rows with `series`, `x` and `y`, and, where they have them, an `error` of y and a `name`.

    Rows of one `curve`, or else of one series, are joined. Rows with a `number` (text) carry it beside their points.
    `front` are points (x, y) that a grey line joins, `level` a figure at which a dotted line stands, in a colour, with
    a name.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]
    x: Axis
    y: Axis = Axis()
    front: Sequence[tuple[float, float]] = ()
    level: tuple[float, str, str] | None = None


def finite(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points (x, y) that can be drawn."""
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def is_curve(points: Iterable[tuple[float, float | None]]) -> bool:
    """Whether points at several x can be drawn. Panels without any curve are left out."""
    return len({x for x, _ in finite(points)}) > 1


def panels(all_panels: Sequence[Panel], series: Sequence[Series], columns: int = 3, width: int = 0) -> Chart:
    """Lines and points of all panels, with one legend of all series. `width` of a panel, in pixels; 0 for a default."""
    columns = min(columns, len(all_panels))
    width = width or {1: 460, 2: 300}.get(columns, 200)
    drawn = {row["series"] for panel in all_panels for row in panel.rows}
    named = list({one.name: one for one in series if one.name in drawn}.values())
    shown = alt.selection_point(name="shown", fields=["series"], bind="legend")
    views = [
        _panel(panel, number, named, shown, width, columns * width).properties(width=width, height=0.62 * width)
        for number, panel in enumerate(all_panels)
    ]
    if len(views) == 1:
        return views[0]
    return alt.concat(*views, columns=columns, spacing={"row": 84, "column": 56}, bounds="flush")


def _panel(panel: Panel, number: int, series: Sequence[Series], shown: alt.Parameter, width: int, room: int) -> Any:
    names = [one.name for one in series]
    defaults = {"number": "", "error": 0}
    rows = [
        {"name": row["series"], "curve": row["series"], "place": names.index(row["series"]), **defaults, **row}
        for row in panel.rows
    ]
    data = alt.Data(values=[row | {"low": row["y"] - row["error"], "high": row["y"] + row["error"]} for row in rows])
    picked = alt.selection_point(name=f"picked_{number}", fields=["name", "x"], on="click", empty=False)
    across = max(1, int(room / (36 + LETTER * max(map(len, names)))))
    legend = alt.Legend(columns=across)

    def scale(values: list) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    def conditions(values: list) -> list[dict[str, Any]]:
        """Values of series without a scale, which would make outlines of symbols in the legend dashed, and fill hollow
        ones."""
        return [{"test": f"datum.place === {place}", "value": value} for place, value in enumerate(values)]

    xs, ys = ([row[side] for row in rows] for side in ("x", "y"))
    base = alt.Chart(data).encode(
        x=alt.X(
            "x:Q",
            title=panel.x.title or None,
            scale=_scale(panel.x, xs),
            axis=_axis(panel.x, width, xs),
        ),
        y=alt.Y("y:Q", title=None, scale=_scale(panel.y, ys), axis=_axis(panel.y, width, ys)),
        opacity=alt.condition(shown, alt.value(1), alt.value(0.08)),
    )
    colours = [one.colour for one in series]
    text = base.encode(color=alt.ColorValue(INK, condition=conditions(colours)))
    base = base.encode(stroke=alt.Stroke("series:N", scale=scale(colours), legend=legend))
    dashes = [DASHES[one.dash % len(DASHES)] for one in series]
    dash = alt.StrokeDashValue(DASHES[0], condition=conditions(dashes))
    shape = alt.Shape("series:N", scale=scale([SHAPES[one.marker] for one in series]), legend=legend)
    fill = alt.Fill("series:N", scale=scale([PAPER if one.hollow else one.colour for one in series]), legend=legend)
    tips = [
        alt.Tooltip("name:N", title="row"),
        alt.Tooltip("x:Q", format=".4g", title=panel.x.title or "x"),
        alt.Tooltip("y:Q", format=".4g", title=panel.y.title or "y"),
    ]
    points = base.mark_point(size=44, strokeWidth=1.5).encode(fill=fill, shape=shape)
    # The legend listens to the first layer that has one, and clicks go through the others: the same points, at the
    # bottom. All panels listen to the legend of the first.
    targets = points.encode(tooltip=tips).add_params(*([picked] if number else [picked, shown]))
    layers: list[alt.Chart] = [targets]
    if panel.front:
        front = alt.Data(values=[{"x": x, "y": y} for x, y in panel.front])
        layers.append(alt.Chart(front).mark_line(color=RULE, strokeWidth=5).encode(x="x:Q", y="y:Q", order="x:Q"))
    if panel.level:
        level, colour, name = panel.level
        at = alt.Data(values=[{"y": level, "name": name}])
        layers.append(alt.Chart(at).mark_rule(color=colour, strokeDash=[2, 3]).encode(y="y:Q", tooltip="name:N"))
        layers.append(
            alt.Chart(at)
            .mark_text(color=colour, align="right", baseline="bottom", dy=-2)
            .encode(x=alt.value(width), y="y:Q", text="name:N")
        )
    layers.append(base.mark_line(strokeWidth=1.6).encode(strokeDash=dash, detail="curve:N", order="x:Q"))
    if any(row["error"] for row in rows):
        layers.append(base.mark_rule().encode(y="low:Q", y2="high:Q"))
    layers.append(points)
    if any(row["number"] for row in rows):
        layers.append(text.mark_text(dx=-6, dy=-8, align="right").encode(text="number:N"))
    said = text.transform_filter(picked).mark_text(align="left", baseline="top", fontWeight="bold", clip=False)
    layers.append(said.encode(x=alt.value(4), y=alt.value(2), text="name:N", opacity=alt.value(1)))
    return alt.layer(*layers, title=panel.title)


def _scale(axis: Axis, values: Sequence[float]) -> alt.Scale:
    if axis.log:
        return alt.Scale(type="log", domain=[min(values) / 1.25, max(values) * 1.25], nice=False)
    return alt.Scale(zero=False, nice=True, padding=8)


def _axis(axis: Axis, width: int, values: Iterable[float]) -> alt.Axis:
    if not axis.whole:
        # Without digits, d3 writes 1e+2 for 100 where ticks are 20 apart.
        return alt.Axis(tickCount=max(3, width // 70), format=".6~g")
    distinct = sorted(set(values))
    # Few numbers, such as those of steps, have a tick each.
    ticks = {"values": distinct} if len(distinct) <= FEW else {"tickCount": max(3, width // 70), "tickMinStep": 1}
    return alt.Axis(format=",d", **ticks)


def save(chart: Chart, folder: Path, name: str, colours: Iterable[str] = ()) -> str:
    """Write NAME.svg and NAME.png into `folder`; returns the element for the page. The bytes are reproducible.

    `colours` (hexadecimal) become CSS variables on the page, so that it can be light or dark. The element holds the
    picture, and what the script of the page draws in its place.
    """
    spec = _with_texts(chart.to_dict(), lambda text: NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
    spec["config"] = CONFIG
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    with atomic(folder / f"{name}.svg") as file:
        file.write(svg.replace(PAPER, "#ffffff"))
    with atomic(folder / f"{name}.png", "wb") as file:
        file.write(vl_convert.svg_to_png(svg.replace(PAPER, "#ffffff"), scale=SCALE))
    spec["config"] = CONFIG | {"background": "transparent"}
    variables = VARIABLES | {colour: f"--{colour_class(colour)}" for colour in colours}
    # A value of a row that is a colour's name stays.
    coloured = _with_texts(
        spec, lambda text: f"var({variables[text]})" if text in variables else text, ("datasets", "values", "domain")
    )
    # In a script, `<` could begin the tag that ends it.
    written = json.dumps(coloured, ensure_ascii=False).replace("<", "\\u003c")
    still = f'<div class="still">{for_page(svg, name, variables)}</div>'
    return f'{still}\n<div class="live"></div>\n<script type="application/json">{written}</script>'


# Characters that XML cannot hold, and a subword can.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _with_texts(value: Any, change: Callable[[str], str], without: Collection[str] = ()) -> Any:
    """A specification with changed texts, but for what stands at keys in `without`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: entry if key in without else _with_texts(entry, change, without) for key, entry in value.items()}
    return [_with_texts(entry, change, without) for entry in value] if isinstance(value, list) else value


def for_page(svg: str, name: str, variables: Mapping[str, str]) -> str:
    """An SVG document as an element of a page: as wide as its place, ids of its own, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*>)<rect [^>]*fill="white"/>', r"\1", svg, count=1)

    def changed(tag: re.Match) -> str:
        text = re.sub(r'\bid="', f'id="{name}-', tag[0])
        text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
        for colour, variable in variables.items():
            text = text.replace(f'"{colour}"', f'"var({variable})"')
        return text

    # Only in tags: text between them may look the same.
    return re.sub(r"<[^>]*>", changed, svg)


# Draws every chart of the page, in the place of its picture. Its errors leave the pictures.
DRAW = """
for (const script of document.querySelectorAll('figure script[type="application/json"]')) {
  const figure = script.closest("figure");
  vegaEmbed(figure.querySelector(".live"), JSON.parse(script.textContent), {renderer: "svg", actions: false}).then(
    () => figure.classList.add("drawn"));
}
"""


@functools.cache
def script() -> str:
    """The program that draws the charts of a page: Vega, Vega-Lite and Vega-Embed in one text."""
    return vl_convert.javascript_bundle(DRAW).replace("</script", "<\\/script")
