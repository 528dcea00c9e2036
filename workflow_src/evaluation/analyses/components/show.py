"""The variance that principal components hold, as a picture and a table."""

from __future__ import annotations

import itertools

from workflow_src.evaluation.analyses.components import Components
from workflow_src.evaluation.analyses.shown import figured
from workflow_src.evaluation.charts import MUTED, Axis, Chart, Panel, Series, panels
from workflow_src.evaluation.document import Block, Caption, Table
from workflow_src.evaluation.manifest import OTHER, Manifest


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


def draw(content: Components, manifest: Manifest) -> Chart | None:
    """Variance that each principal component of the posterior means holds, and that the first so many hold together.

    None where no system has two components.
    """
    systems = [system for system in content.systems if len(system.shares) > 1]
    if not systems:
        return None
    colours = {system.name: system.family.look.colour for system in manifest.systems}
    series = [
        Series(system.system, colours.get(system.system) or OTHER.colour or "", MARKERS[number % len(MARKERS)], number)
        for number, system in enumerate(systems)
    ]
    x = Axis("principal component", whole=True)
    alone, together = (
        [
            {"series": system.system, "x": number, "y": 100 * share}
            for system in systems
            for number, share in enumerate(shares(system), 1)
        ]
        for shares in (lambda system: system.shares, lambda system: itertools.accumulate(system.shares))
    )
    level = (100 * content.share, MUTED, f"{100 * content.share:g} %")
    return panels(
        [
            Panel("variance in each component, %", alone, x),
            Panel("in the first components together, %", together, x, level=level),
        ],
        series,
    )
