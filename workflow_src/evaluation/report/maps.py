"""Pictures of maps with matplotlib: latents in their plane, and latents of two translations.

Files carry text as shapes; the copies for the page carry text as text and colours as CSS variables, so that the page
can be light or dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from workflow_src.evaluation.report.page import colour_class
from workflow_src.records.atomic import atomic

INK, MUTED, RULE = "#1b1b1d", "#6f6f77", "#d9d9de"
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"}
# Resolution of PNG files.
DPI = 200
# A user's matplotlibrc changes no figure, and no text is parsed as math: names and subwords have any characters.
STYLE = {key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")} | {
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
}


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, folder: Path, name: str, colours: Iterable[str] = ()) -> str:
    """Write NAME.svg and NAME.png into `folder`; returns the SVG element for the page. The bytes are reproducible.

    `colours` (hexadecimal) become CSS variables on the page.
    """
    with matplotlib.rc_context(STYLE):
        # The layout is computed once for all formats: it takes longer than drawing. The width of text depends on the
        # resolution, which is that of the file.
        figure.set_dpi(DPI)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")

    def svg(fonttype: str) -> str:
        file = io.StringIO()
        with matplotlib.rc_context(STYLE | {"svg.fonttype": fonttype, "svg.hashsalt": name}):
            figure.savefig(file, format="svg", transparent=fonttype == "none", metadata={"Date": None})
        return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", file.getvalue())

    with atomic(folder / f"{name}.svg") as file:
        file.write(svg("path"))
    with atomic(folder / f"{name}.png", "wb") as file, matplotlib.rc_context(STYLE):
        figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return for_page(svg("none"), name, colours)


# Characters that XML cannot hold, and a subword can.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def for_page(svg: str, name: str, colours: Iterable[str] = ()) -> str:
    """An SVG document as an element of a page: no prologue or metadata, ids of its own, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    variables = VARIABLES | {colour: f"--{colour_class(colour)}" for colour in colours}

    def changed(tag: re.Match) -> str:
        text = re.sub(r'\bid="', f'id="{name}-', tag[0])
        text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
        for colour, variable in variables.items():
            text = text.replace(colour, f"var({variable})")
        return text

    # Only in tags: text between them may look the same.
    return re.sub(r"<[^>]*>", changed, svg)
