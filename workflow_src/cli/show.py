"""What a plan says: a table and lines for readers, JSON for programs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import rich.box
import rich.table
import rich.text

from workflow_src.cli.plan import Node, Overview, Reason
from workflow_src.cli.sizes import limit_in_words
from workflow_src.config.costs import GPU, WIDE

# Columns of a terminal that the table fits into, and of them those of numbers and between columns.
TERMINAL, NUMBERS = 80, 28
UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
Cell = Callable[[Node], str | rich.text.Text]


def as_table(overview: Overview) -> rich.table.Table:
    """A row a node, for the terminal: what runs, why, and its hours; of everything that is counted, what it takes.

    Finished nodes are dim.
    """
    table = rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=summary(overview),
        title_justify="left",
        title_style="bold",
        show_footer=overview.everything,
    )
    table.add_column("stage", "all", no_wrap=True)
    table.add_column("system", no_wrap=True)
    columns = cost_columns(overview) if overview.everything else plan_columns(overview)
    for head, footer, _ in columns:
        # Reasons alone are wrapped, so that 80 columns are enough.
        style: dict[str, Any] = {"overflow": "fold"} if head == "why" else {"justify": "right", "no_wrap": True}
        table.add_column(head, footer, **style)
    for node in overview.nodes.values():
        cells = [cell(node) for _, _, cell in columns]
        table.add_row(node.title, node.system, *cells, style=None if node.run else "dim")
    return table


def plan_columns(overview: Overview) -> list[tuple[str, str, Cell]]:
    """Heads, footers and cells of what would run."""
    room = TERMINAL - NUMBERS
    for side in ("title", "system"):
        room -= max((len(getattr(node, side)) for node in overview.nodes.values()), default=0)

    def why(node: Node) -> rich.text.Text:
        return rich.text.Text("\n".join(_wrappable(reason, room) for reason in node.why))

    return [
        ("run", "", lambda node: str(node.run or "")),
        ("done", "", lambda node: str(node.jobs - node.run or "")),
        ("why", "", why),
        (unit(overview), "", lambda node: hours_text(overview, node)),
    ]


def cost_columns(overview: Overview) -> list[tuple[str, str, Cell]]:
    """Heads, footers and cells of what everything takes."""
    return [
        ("jobs", str(overview.all.jobs), lambda node: str(node.jobs)),
        ("parameters", "", lambda node: _short(node.parameters)),
        ("tokens", _short(overview.training_tokens), lambda node: _short(node.tokens)),
        (unit(overview), hours_text(overview, overview.all), lambda node: hours_text(overview, node)),
    ]


def facts(overview: Overview) -> Iterator[str]:
    """Lines below the table: what hours are of, disk, memory, sizes and what they come from."""
    if overview.everything:
        yield "Jobs: " + ", ".join(f"{rule} {jobs}" for rule, jobs in overview.all.rules.items()) + "."
        yield "Tokens are target positions, in training with padding."
    yield hours_caption(overview)
    if overview.warning:
        yield overview.warning
    if not overview.all.run:
        return
    space = f"Disk: about {overview.disk / 1e9:.1f} GB, downloads not counted. " if overview.disk is not None else ""
    yield f"{space}Memory: the largest job asks for {overview.all.memory / 1000:.1f} GB."
    trainings = {node.system: node for node in overview.nodes.values() if node.stage == "train" and node.run}
    after = {name: others for name, others in overview.after.items() if name in trainings}
    if after:
        waiting = "; ".join(f"{name} for {', '.join(others)}" for name, others in after.items())
        yield f"Trainings that wait for others, while cores may be idle: {waiting}."
    sizes = overview.sizes
    pairs = f" Training pairs: {sizes.pairs:,} ({sizes.sources['pairs']})." if sizes.pairs else ""
    yield f"Subwords a sentence: {sizes.length:.3g} ({sizes.sources['length']}).{pairs}"
    if sizes.limit:
        yield limit_in_words(sizes.limit)
    if overview.auto and overview.vocabulary_size:
        counts = [(system, node.updates) for system, node in trainings.items() if node.updates]
        updates = ", ".join(f"{system} {count:,}" for system, count in counts)
        sized = [f"updates {updates}"] if updates else []
        sized.append(f"{overview.vocabulary_size:,} subwords in the vocabulary")
        yield f"Settings that are auto come to about: {'; '.join(sized)}."
    if any(work.tokens is None for work in overview.all.work):
        yield "Distillation is not counted: the number of training pairs is not known; give --pairs."


def unit(overview: Overview) -> str:
    return "core-hours" if overview.measured else "GPU-hours"


def hours_text(overview: Overview, node: Node) -> str:
    """Hours of one core where this machine was measured, else GPU-hours; nothing where a node has no such work."""
    return duration(node.core_hours) if overview.measured else _range(node.gpu_hours)


def _wrappable(reason: str, width: int) -> str:
    """A reason with line breaks in names of settings and files that are longer, after dots and slashes."""
    words = []
    for word in reason.split(" "):
        lines = [""]
        for part in re.split(r"(?<=[./])", word):
            if lines[-1] and len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines))
    return " ".join(words)


def summary(overview: Overview) -> str:
    """One line: the number of jobs that would run, and their hours."""
    jobs = overview.all
    if overview.everything:
        counts = f"{jobs.jobs} jobs in all"
    elif jobs.run:
        counts = f"{jobs.run} of {jobs.jobs} jobs would run"
    else:
        return f"{overview.experiment}: nothing to be done, {jobs.jobs} jobs are done"
    on_core = f"{duration(overview.core_hours)} of one core" if overview.core_hours else ""
    on_gpu = f"{_range(jobs.gpu_hours)} of one GPU" if jobs.gpu_hours else ""
    hours = " or ".join(filter(None, [on_core, on_gpu]))
    return f"{overview.experiment}: {counts}, {hours}" if hours else f"{overview.experiment}: {counts}"


def hours_caption(overview: Overview) -> str:
    """What the hours of a plan are of."""
    counted = "analyses and measuring speed count where they have run before"
    if overview.measured:
        return f"Core-hours are of this machine, estimated for jobs that have not run; {counted}."
    shared = f" {overview.jobs_per_gpu} jobs at a time share a GPU." if overview.jobs_per_gpu > 1 else ""
    return (
        f"GPU-hours are of one {GPU}, at 10 to 40 % of its peak in training (3 to 15 % below width {WIDE}) and 0.3 to "
        f"5 % in decoding, each job by itself; {counted}.{shared}"
    )


def _short(value: float | None) -> str:
    if value is None:
        return ""
    for limit, unit_letter in UNITS:
        if value >= limit:
            return f"{value / limit:.3g} {unit_letter}"
    return f"{value:.3g}"


def duration(hours: float | None) -> str:
    """Hours in a fitting unit, such as `5.4 h`, `12 min` or `8 s`; nothing where they are not known or none."""
    if not hours:
        return ""
    if hours >= 1:
        return f"{hours:.1f} h" if hours < 100 else f"{hours:.0f} h"
    if hours >= 1 / 60:
        return f"{60 * hours:.0f} min"
    return f"{3600 * hours:.0f} s" if hours >= 1 / 3600 else "< 1 s"


def _range(hours: tuple[float, float] | None) -> str:
    return " to ".join(dict.fromkeys(map(duration, hours))) if hours else ""


def as_json(overview: Overview) -> dict[str, Any]:
    keys = list(overview.nodes)
    return {
        "experiment": overview.experiment,
        "recipe": overview.recipe,
        **_counts_as_json(overview.all),
        "gpu": GPU,
        "core_hours": overview.core_hours,
        "disk_bytes": overview.disk,
        "training_tokens": overview.training_tokens,
        "pairs": overview.sizes.pairs,
        "length": overview.sizes.length,
        "sources": dict(overview.sizes.sources),
        "max_length": overview.sizes.limit,
        "auto": overview.auto,
        "vocabulary_size": overview.vocabulary_size,
        "after": dict(overview.after),
        "warning": overview.warning,
        "nodes": [
            {
                "stage": node.stage,
                "system": node.system or None,
                **_counts_as_json(node),
                "reasons": [_as_set(reason) | {"jobs": jobs} for reason, jobs in node.reasons.items()],
                "tokens": node.tokens,
                "parameters": node.parameters,
                "updates": node.updates,
                "after": [keys.index(other) for other in overview.graph.predecessors(key)],
            }
            for key, node in overview.nodes.items()
        ],
    }


def _counts_as_json(node: Node) -> dict[str, Any]:
    return {
        "jobs": node.jobs,
        "run": node.run,
        "rules": {rule: {"run": node.runs[rule], "jobs": jobs} for rule, jobs in node.rules.items()},
        "gpu_hours": node.gpu_hours,
        "core_hours": node.core_hours,
        "operations": node.operations,
        "memory_mb": node.memory,
    }


def _as_set(reason: Reason) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(reason).items() if value is not None}
