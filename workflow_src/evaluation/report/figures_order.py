"""The picture of latents and word order: which latents of two translations fit, and what stands in which slots."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses.contents import OrderExample, OrderPanel, Reordering
from workflow_src.evaluation.report.figures import MUTED, STYLE, _figure

# Panels of one row: a system with alignments fills it. Labels of many subwords are written smaller.
ABREAST, MANY = 3, 16
STAYS, MOVES = "#0072b2", "#d55e00"


def reordering(found: Reordering, manifest: Manifest) -> Figure | None:
    """Distances between the posterior means of two translations of one source, and the assignment that is nearest.

    Beside them, for systems that have alignments, those of the two translations with the source, unless there are more
    subwords than slots. None where no two translations of a sentence were compared.
    """
    example = found.example
    if example is None:
        return None
    # Systems with alignments come first, so that each has a row of its own.
    panels = sorted(example.panels, key=lambda panel: panel.alignments is None)
    cells = [
        (panel, side)
        for panel in panels
        for side in (None, 0, 1)[: 3 if panel.alignments else 1]
        if side is None or panel.alignments[side].places is not None
    ]
    columns = min(ABREAST, len(cells))
    rows = -(-len(cells) // columns)
    names = ("the reference", found.translations.system)
    with matplotlib.rc_context(STYLE):
        figure = _figure(2.9 * columns, 3.1 * rows)
        for number, axes in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
            if number >= len(cells):
                axes.set_visible(False)
                continue
            panel, side = cells[number]
            if side is None:
                _assignment(axes, example, panel)
            else:
                _alignment(axes, example, panel, side)
            axes.set_title(panel.system if side is None else f"{panel.system}, {names[side]}")
    return figure


def _size(pieces: Sequence[str]) -> float:
    """The size of labels of subwords."""
    return 7 if len(pieces) <= MANY else 5


def _assignment(axes: Axes, example: OrderExample, panel: OrderPanel) -> None:
    """Distances of latents of the first translation (down) and of the second (across), and who fits whom."""
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


def _alignment(axes: Axes, example: OrderExample, panel: OrderPanel, side: int) -> None:
    """The slots that hold each subword of a translation (down), as wide as they are on the source (across)."""
    found = panel.alignments[side]
    across, down = example.pieces, example.target_pieces[side]
    width = len(across) / found.slots
    for row, slots in enumerate(found.places):
        axes.broken_barh([(slot * width, width) for slot in slots], (row + 0.15, 0.7), color=STAYS, linewidth=0)
    axes.set(xlim=(0, len(across)), ylim=(len(down), 0))
    axes.set_xticks(np.arange(len(across)) + 0.5, across, rotation=90, fontsize=_size(across))
    axes.set_yticks(np.arange(len(down)) + 0.5, down, fontsize=_size(down))
