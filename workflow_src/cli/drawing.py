"""The picture of a plan: a lane for each system, stages from left to right, as SVG or in an HTML page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jinja2
import networkx as nx

from workflow_src.cli.plan import Node, Overview
from workflow_src.cli.show import hours_caption, hours_text, summary
from workflow_src.records.atomic import atomic

SUFFIXES = (".svg", ".html")
# Stages that share a column, after all trainings; others stand as early as they can. Stages after an export or a
# translation that are not named here, such as `finish_bundle`, stand in the column of comparisons.
COMPARING = ("compare_rows", "measure_speed", "analyse")
ALIGNED = (("export",), ("translate",), COMPARING, ("report",))
# Sizes are in points.
# Width and height of a box, which has a title, the number of jobs, and up to two lines of reasons.
BOX = 132
HEIGHT = 58
# Horizontal space between two boxes.
GAP = 18
# Height of a lane, and width of its label.
LANE = 68
LABEL = 112
MARGIN = 8
# Characters that fit into a box, and beside a lane.
FITS, LANE_FITS = 22, 17
Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Box:
    """A node where it is drawn: `x` and `y` of its upper left corner; `kind` is done, new or own.

    A node that runs for no reason of its own is new.
    """

    x: float
    y: float
    kind: str
    title: str
    lines: tuple[str, ...]
    tip: str


@dataclasses.dataclass(frozen=True)
class Picture:
    """Boxes, curves between them as SVG paths with whether jobs run on both sides, and a label for each lane."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    curves: tuple[tuple[str, bool], ...]
    labels: tuple[tuple[str, float], ...]


def columns(graph: nx.DiGraph) -> dict[Key, int]:
    """The column of every node, from 0: to the right of all that it follows."""
    placed: dict[Key, int] = {}
    aligned = {key for key in graph if any(key[0] in stages for stages in ALIGNED)}
    after = set().union(*(nx.descendants(graph, key) for key in aligned)) - aligned
    for key in nx.topological_sort(graph):
        if key not in aligned | after:
            placed[key] = max((placed.get(predecessor, 0) + 1 for predecessor in graph.predecessors(key)), default=0)
    column = max(placed.values(), default=-1)
    for stages in ALIGNED:
        keys = [key for key in graph if key[0] in stages or (stages is COMPARING and key in after)]
        column += bool(keys)
        placed |= dict.fromkeys(keys, column)
    return placed


def picture(overview: Overview) -> Picture:
    """Places of all boxes and curves. Edges that others imply are left out."""
    lanes = [name for name in overview.systems if any(key[1] == name for key in overview.nodes)]
    height = 2 * MARGIN + LANE * max(len(lanes), 3)
    column = columns(overview.graph)
    shared: dict[int, list[Key]] = {}
    for key in overview.nodes:
        if not key[1]:
            shared.setdefault(column[key], []).append(key)
    places: dict[Key, tuple[float, float]] = {}
    for key in overview.nodes:
        x = MARGIN + LABEL + column[key] * (BOX + GAP)
        y: float
        if key[1]:
            y = MARGIN + lanes.index(key[1]) * LANE
        else:
            neighbours = shared[column[key]]
            y = height / 2 + (neighbours.index(key) - len(neighbours) / 2) * LANE
        places[key] = (x, y + (LANE - HEIGHT) / 2)
    boxes = tuple(_box(overview, node, *places[key]) for key, node in overview.nodes.items())
    curves = []
    for source, target in nx.transitive_reduction(overview.graph).edges:
        (left, top), (right, low) = places[source], places[target]
        start, y, end, end_y = left + BOX, top + HEIGHT / 2, right, low + HEIGHT / 2
        middle = (start + end) / 2
        path = f"M{start:g} {y:g}C{middle:g} {y:g} {middle:g} {end_y:g} {end:g} {end_y:g}"
        curves.append((path, overview.nodes[source].run > 0 and overview.nodes[target].run > 0))
    labels = tuple((_cut(name, LANE_FITS), MARGIN + (number + 0.5) * LANE) for number, name in enumerate(lanes))
    width = 2 * MARGIN + LABEL + (max(column.values(), default=0) + 1) * (BOX + GAP) - GAP
    return Picture(width, height, boxes, tuple(sorted(curves, key=lambda curve: curve[1])), labels)


def _box(overview: Overview, node: Node, x: float, y: float) -> Box:
    has_own_reason = any(reason.kind not in ("follows", "new") for reason in node.reasons)
    kind = "own" if has_own_reason else "new" if node.run else "done"
    hours = hours_text(overview, node)
    of_all = f" of {node.jobs}" if node.run < node.jobs else ""
    jobs = f"{node.run}{of_all} to run" if node.run else f"{node.jobs} done"
    lines = [" · ".join(filter(None, [jobs, hours]))]
    changed = next((reason for reason in node.reasons if reason.name), None)
    if changed and changed.name:
        lines += [changed.name.rpartition(".")[2], f"{changed.old} → {changed.new}"]
    else:
        lines += node.why[:1]
    tip = "\n".join([f"{node.title} {node.system}".rstrip(), rules_text(node), *node.why])
    return Box(x, y, kind, _cut(node.title, FITS), tuple(_cut(line, FITS) for line in lines), tip)


def rules_text(node: Node) -> str:
    """How many jobs of each rule would run, and how many there are."""
    return ", ".join(f"{rule} {node.runs[rule]} of {jobs}" for rule, jobs in node.rules.items())


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def write(overview: Overview, path: Path) -> None:
    """Write the picture as .svg, or as .html with a table of all nodes below it, by the ending of `path`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template(f"plan{path.suffix}.j2")
    rows = [(node, rules_text(node), hours_text(overview, node)) for node in overview.nodes.values()]
    text = template.render(
        picture=picture(overview),
        overview=overview,
        summary=summary(overview),
        rows=rows,
        box=BOX,
        height=HEIGHT,
        label=MARGIN + LABEL - 8,
        hours_of=hours_caption(overview),
    )
    with atomic(path) as file:
        file.write(text + "\n")
