"""The variance that principal components hold, as a picture and a table."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workflow_src.evaluation.analyses.components import Components
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.manifest import OTHER, Manifest
from workflow_src.evaluation.report.document import Block, Caption, Table
from workflow_src.evaluation.report.figures import DASHES, MUTED, STYLE, new_figure


def show(content: Components, manifest: Manifest) -> list[Block]:
    caption = Caption(
        "Principal components of the posterior means of q(z|x,y) on "
        f"{content.scope} and their references, as in Figure 5 of Gu & Kong 2021: "
        "how many of the Z dimensions the latents use.",
        {
            "Participation": "The number of equally large components that would spread alike.",
            "Variances": "Sums over the dimensions: latents whose means vary little beside the variance of q carry "
            "little.",
        },
    )
    label = "Variance of posterior means by principal component"
    return figured(draw(content, manifest), caption, label, components_table(content))


def components_table(content: Components) -> Table:
    components_head = f"components that hold {100 * content.share:g} %"
    heads = ["", "latents", "Z", components_head, "participation ratio", "variance of the means", "mean variance of q"]
    rows = [
        [
            system.system,
            f"{system.latents:,}",
            str(system.width),
            str(system.components),
            f"{system.participation:.2f}",
            *(f"{variance:.3g}" for variance in (system.variance, system.noise)),
        ]
        for system in content.systems
    ]
    return Table(heads, rows)


# Systems of one family share a colour: they differ in dashes and markers.
MARKERS = "osD^vP"


def draw(content: Components, manifest: Manifest) -> Figure | None:
    """Variance that each principal component of the posterior means holds, and that the first so many hold together.

    None where no system has two components.
    """
    systems = [system for system in content.systems if len(system.shares) > 1]
    if not systems:
        return None
    colours = {system.name: system.family.look.colour for system in manifest.systems}
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 2.9)
        left, right = figure.subplots(1, 2)
        lines = []
        for number, system in enumerate(systems):
            colour = colours.get(system.system) or OTHER.colour
            style: dict[str, Any] = {
                "color": colour,
                "marker": MARKERS[number % len(MARKERS)],
                "markersize": 4,
                "linestyle": DASHES[number % len(DASHES)],
            }
            shares = 100 * np.array(system.shares)
            numbers = np.arange(1, len(shares) + 1)
            lines += left.plot(numbers, shares, **style)
            right.plot(numbers, shares.cumsum(), **style)
        right.axhline(100 * content.share, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
        left.set_title("variance in each component, %")
        right.set_title(f"in the first components together, %   (dotted: {100 * content.share:g})")
        for axes in (left, right):
            axes.set_xlabel("principal component of the posterior means")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            axes.set_ylim(-3, 104)
        legend: dict[str, Any] = {"frameon": False, "fontsize": 7, "handlelength": 3.2, "columnspacing": 1.4}
        names = [system.system for system in systems]
        figure.legend(lines, names, loc="outside lower center", ncols=min(4, len(systems)), **legend)
    return figure
