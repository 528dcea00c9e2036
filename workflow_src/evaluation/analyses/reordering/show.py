"""Latents and word order: matched latents of two translations, alignments with slots, and a table."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow_src.evaluation.analyses.reordering import Alignment, OrderExample, OrderPanel, Reordering
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.document import Block, Caption, Table
from workflow_src.evaluation.report.maps import MUTED, STYLE, new_figure
from workflow_src.evaluation.report.markdown import signed

# Panels of one row: a system with alignments fills it. Labels of many subwords are written smaller.
ABREAST, MANY = 3, 16
STAYS, MOVES = "#0072b2", "#d55e00"


def show(content: Reordering, _: Manifest) -> list[Block]:
    label = "Which posterior means of two translations fit each other"
    return figured(draw(content), _caption(content), label, reordering_table(content))


def _caption(content: Reordering) -> Caption:
    example, translator = content.example, content.translations.system
    if example is None:
        return Caption(
            f"Latents and word order, as in Figure 6 of Gu & Kong 2021: none of {content.scope} has a translation of "
            f"{translator} that differs from the reference and shares two words with it."
        )
    first, second = example.texts
    slots = (
        "Where a model has alignments: the slots that hold each subword of either translation (down) on its most "
        "probable alignment given its own latents, at their places on the source (across)."
    )
    return Caption(
        f"Means of q(z|x,y) with the reference as y (down) and with the translation of {translator} (across), and "
        "which of them fit each other best, as in Figure 6 of Gu & Kong 2021.",
        {
            "Shown": f"Line {example.sentence + 1}: “{first}” and “{second}”, {100 * example.order:.0f} % of whose "
            "pairs of shared words stand in the opposite order.",
            "Dots": "The assignment with the least sum of distances; light is near.",
            "Slots": slots if any(panel.alignments for panel in example.panels) else "",
            "Table": f"Of the {content.compared:,} of {content.scope} whose two translations differ and share two "
            "words or more.",
            "Moved by": "Positions, the mean.",
            "Change / spread": "Distance at the same position beside that at others.",
            "Correlation": "Of the distance moved and the share of pairs in the opposite order, over sentences.",
        },
    )


def reordering_table(content: Reordering) -> Table:
    heads = ["", "word order", "sentences", "latents that move, %", "moved by", "change / spread", "correlation"]
    rows = []
    for system in content.systems:
        correlation = "" if system.correlation is None else signed(system.correlation)
        groups = [(words, group) for words, group in (("the same", system.same), ("another", system.other)) if group]
        for number, (words, group) in enumerate(groups):
            share = group.change / group.spread if group.spread else 0.0
            rows.append(
                [
                    "" if number else system.system,
                    words,
                    f"{group.sentences:,}",
                    f"{100 * group.moved:.1f}",
                    f"{group.displacement:.2f}",
                    f"{share:.2f}",
                    "" if number else correlation,
                ]
            )
    return Table(heads, rows)


def draw(content: Reordering) -> Figure | None:
    """Distances between the posterior means of two translations of one source, and the assignment that is nearest.

    Beside them, for systems that have alignments, those of the two translations with the source, unless there are more
    subwords than slots. None where no two translations of a sentence were compared.
    """
    example = content.example
    if example is None:
        return None
    # Systems with alignments come first, so that each has a row of its own.
    panels = sorted(example.panels, key=lambda panel: panel.alignments is None)
    cells: list[tuple[OrderPanel, int | None]] = []
    for panel in panels:
        cells.append((panel, None))
        cells += [(panel, side) for side, one in enumerate(panel.alignments or ()) if one.places is not None]
    columns = min(ABREAST, len(cells))
    rows = -(-len(cells) // columns)
    names = ("the reference", content.translations.system)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(2.9 * columns, 3.1 * rows)
        for number, axes in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
            if number >= len(cells):
                axes.set_visible(False)
                continue
            panel, side = cells[number]
            if side is None or panel.alignments is None:
                _assignment(axes, example, panel)
            else:
                _alignment(axes, panel.alignments[side], example.pieces, example.target_pieces[side])
            axes.set_title(panel.system if side is None else f"{panel.system}, {names[side]}")
    return figure


def _size(pieces: Sequence[str]) -> float:
    """The size of labels of subwords."""
    return 7 if len(pieces) <= MANY else 5


def _assignment(axes: Axes, example: OrderExample, panel: OrderPanel) -> None:
    """Distances of latents of the first translation (down) and of the second (across), and which fit each other."""
    pieces, size = example.pieces, _size(example.pieces)
    numbers = np.arange(len(pieces))
    axes.pcolormesh(np.array(panel.distances), cmap="Greys", edgecolors="none", rasterized=False)
    axes.plot(numbers + 0.5, numbers + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    moved = np.array(panel.assigned) != numbers
    for chosen, colour in ((~moved, STAYS), (moved, MOVES)):
        x, y = np.array(panel.assigned)[chosen] + 0.5, numbers[chosen] + 0.5
        axes.plot(x, y, "o", color=colour, markersize=4.5, markeredgecolor="white", markeredgewidth=0.6)
    axes.set_xticks(numbers + 0.5, pieces, rotation=90, fontsize=size)
    axes.set_yticks(numbers + 0.5, pieces, fontsize=size)
    axes.invert_yaxis()


def _alignment(axes: Axes, alignment: Alignment, across: Sequence[str], down: Sequence[str]) -> None:
    """The slots that hold each subword of a translation (down), as wide as they are on the source (across)."""
    width = len(across) / alignment.slots
    for row, slots in enumerate(alignment.places or ()):
        axes.broken_barh([(slot * width, width) for slot in slots], (row + 0.15, 0.7), color=STAYS, linewidth=0)
    axes.set(xlim=(0, len(across)), ylim=(len(down), 0))
    axes.set_xticks(np.arange(len(across)) + 0.5, across, rotation=90, fontsize=_size(across))
    axes.set_yticks(np.arange(len(down)) + 0.5, down, fontsize=_size(down))
