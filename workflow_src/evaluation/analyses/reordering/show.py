"""Latents and word order: matched latents of two translations, and alignments with slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from workflow_src.evaluation.analyses.reordering import Alignment, OrderExample, OrderPanel, Reordering
from workflow_src.evaluation.charts import MUTED, Chart
from workflow_src.evaluation.document import Block, Caption, Paragraph, Picture
from workflow_src.evaluation.manifest import Manifest

# Panels of one row: a system with alignments fills it. Labels of many subwords are written smaller.
ABREAST, MANY = 3, 16
# Pixels of a panel.
SIDE = 190
STAYS, MOVES = "#0072b2", "#d55e00"


def show(content: Reordering, _: Manifest) -> list[Block]:
    """The example's picture, or why there is none."""
    example, translator = content.example, content.translations.system
    if example is None:
        return [
            Paragraph.of(
                f"None of {content.scope} has a translation of {translator} that differs from the reference and shares "
                "two words with it."
            )
        ]
    first, second = example.texts
    slots = (
        "Where a model has alignments: the slots that hold each subword of either translation (down) on its most "
        "probable alignment given its own latents, at their places on the source (across)."
    )
    caption = Caption(
        f"Means of q(z|x,y) with the reference as y (down) and with the translation of {translator} (across), and "
        "which of them fit each other best, as in Figure 6 of Gu & Kong 2021.",
        {
            "Shown": f"Line {example.sentence + 1}: “{first}” and “{second}”, {100 * example.order:.0f} % of whose "
            "pairs of shared words stand in the opposite order.",
            "Dots": "The assignment with the least sum of distances; light is near.",
            "Slots": slots if any(panel.alignments for panel in example.panels) else "",
        },
    )
    chart = draw(example, translator)
    return [Picture("", chart, caption, "Which posterior means of two translations fit each other")]


def draw(example: OrderExample, translator: str) -> Chart:
    """Distances between the posterior means of two translations of one source, and the assignment that is nearest.

    Beside them, for systems that have alignments, those of the two translations with the source, unless there are more
    subwords than slots.
    """
    # Systems with alignments come first, so that each has a row of its own.
    panels = sorted(example.panels, key=lambda panel: panel.alignments is None)
    names = ("the reference", translator)
    drawn: list[Any] = []
    for panel in panels:
        drawn.append(_assignment(example, panel))
        for name, alignment, pieces in zip(names, panel.alignments or (), example.target_pieces, strict=False):
            if alignment.places is not None:
                drawn.append(_alignment(alignment, example.pieces, pieces, f"{panel.system}, {name}"))
    return alt.concat(*drawn, columns=min(ABREAST, len(drawn)), spacing=24)


def _place(field: str, length: int, downwards: bool = False) -> dict[str, Any]:
    """A place along one side of a panel, in subwords."""
    domain = [length, 0] if downwards else [0, length]
    channel = alt.Y if downwards else alt.X
    return {"y" if downwards else "x": channel(field, axis=None, scale=alt.Scale(domain=domain, nice=False))}


def _names(across: Sequence[str], down: Sequence[str]) -> list[alt.Chart]:
    """Subwords beside the sides of a panel, each in the middle of its place."""

    def rows(pieces: Sequence[str]) -> alt.Data:
        return alt.Data(values=[{"piece": piece, "place": number + 0.5} for number, piece in enumerate(pieces)])

    below = alt.Chart(rows(across)).mark_text(align="right", angle=270, fontSize=_size(across))
    beside = alt.Chart(rows(down)).mark_text(align="right", fontSize=_size(down))
    return [
        below.encode(y=alt.value(SIDE + 5), text="piece:N", **_place("place:Q", len(across))),
        beside.encode(x=alt.value(-5), text="piece:N", **_place("place:Q", len(down), downwards=True)),
    ]


def _size(pieces: Sequence[str]) -> float:
    """The size of letters of subwords."""
    return 9 if len(pieces) <= MANY else 6


def _assignment(example: OrderExample, panel: OrderPanel) -> Chart:
    """Distances of latents of the first translation (down) and of the second (across), and which fit each other."""
    pieces = example.pieces
    plane = _place("x:Q", len(pieces)) | _place("y:Q", len(pieces), downwards=True)
    cells = [
        {"x": column, "x2": column + 1, "y": row, "y2": row + 1, "distance": distance}
        for row, line in enumerate(panel.distances)
        for column, distance in enumerate(line)
    ]
    points = [
        {"x": column + 0.5, "y": row + 0.5, "colour": STAYS if column == row else MOVES}
        for row, column in enumerate(panel.assigned)
    ]
    ends = [{"x": 0, "y": 0}, {"x": len(pieces), "y": len(pieces)}]
    greys = alt.Color("distance:Q", scale=alt.Scale(range=["#ffffff", "#3d3d3d"]), legend=None)
    dots = alt.Chart(alt.Data(values=points)).mark_circle(size=45, opacity=1, stroke="white", strokeWidth=0.8)
    dotted = alt.Chart(alt.Data(values=ends)).mark_line(color=MUTED, strokeWidth=0.8, strokeDash=[1, 2])
    return alt.layer(
        alt.Chart(alt.Data(values=cells)).mark_rect().encode(x2="x2", y2="y2", color=greys, **plane),
        dotted.encode(**plane),
        dots.encode(color=alt.Color("colour:N", scale=None), **plane),
        *_names(pieces, pieces),
        width=SIDE,
        height=SIDE,
        title=panel.system,
    )


def _alignment(alignment: Alignment, across: Sequence[str], down: Sequence[str], title: str) -> Chart:
    """The slots that hold each subword of a translation (down), as wide as they are on the source (across)."""
    width = len(across) / alignment.slots
    bars = [
        {"x": slot * width, "x2": (slot + 1) * width, "y": row + 0.15, "y2": row + 0.85}
        for row, slots in enumerate(alignment.places or ())
        for slot in slots
    ]
    plane = _place("x:Q", len(across)) | _place("y:Q", len(down), downwards=True)
    return alt.layer(
        alt.Chart(alt.Data(values=bars)).mark_rect(color=STAYS).encode(x2="x2", y2="y2", **plane),
        *_names(across, down),
        width=SIDE,
        height=SIDE,
        title=title,
    )
