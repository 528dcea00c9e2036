"""What a plan says: tables and lines for readers, JSON for programs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import rich.box
import rich.table
import rich.text

from workflow_src.cli.plan import Node, Overview
from workflow_src.cli.work import GPU, limit_in_words
from workflow_src.config.costs import WIDE

# Columns of a terminal that the table fits into, and of them those of numbers and between columns.
TERMINAL, NUMBERS = 80, 28
UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def as_table(overview: Overview) -> rich.table.Table:
    """A row a node, for the terminal: what runs and why. Finished nodes are dim."""
    table = _table(summary(overview), hours_caption(overview))
    hours = "core-hours" if overview.measured else "GPU-hours"
    # So that 80 columns are enough, reasons alone are wrapped.
    for head in ("run", "done"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    table.add_column(hours, justify="right", no_wrap=True)
    room = TERMINAL - NUMBERS
    for side in ("title", "system"):
        room -= max((len(getattr(node, side)) for node in overview.nodes.values()), default=0)
    for node in overview.nodes.values():
        why = rich.text.Text("\n".join(_wrappable(reason, room) for reason in node.why))
        counts = (str(node.run or ""), str(node.jobs - node.run or ""))
        style = None if node.run else "dim"
        table.add_row(node.title, node.system, *counts, why, hours_text(overview, node), style=style)
    return table


def as_costs(overview: Overview) -> rich.table.Table:
    """A row a node, for the terminal: what it costs."""
    table = _table(f"experiment {overview.experiment}: {overview.jobs} jobs", "")
    heads = ["jobs", "parameters", "tokens", "operations", "GPU-hours"] + (["core-hours"] if overview.measured else [])
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for node in overview.nodes.values():
        figures = [_short(figure) for figure in (node.parameters, node.tokens, node.operations)]
        hours = [_range(node.gpu_hours)]
        hours += [duration(node.core_hours) if node.core_hours is not None else ""] if overview.measured else []
        table.add_row(node.title, node.system, str(node.jobs), *figures, *hours)
    hours = [_range(overview.gpu_hours)] + ([duration(overview.core_hours)] if overview.measured else [])
    table.add_row("all", "", str(overview.jobs), "", _short(training_tokens(overview)), "", *hours)
    return table


def _table(title: str, caption: str) -> rich.table.Table:
    table = rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=title,
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
    )
    for head in ("stage", "system"):
        table.add_column(head, no_wrap=True)
    return table


def training_tokens(overview: Overview) -> float:
    """Target positions of all trainings, with padding."""
    return sum(node.tokens or 0 for node in overview.nodes.values() if node.stage == "train")


def facts(overview: Overview, costs: bool = False) -> Iterator[str]:
    """Lines below the table: disk, memory, sizes and what they come from; with `costs`, how these are counted."""
    if costs:
        yield "Jobs: " + ", ".join(f"{rule} {jobs}" for rule, (_, jobs) in overview.rules.items()) + "."
        yield (
            f"GPU-hours: of one {GPU}, at 10 to 40 % of its peak in training (3 to 15 % below width {WIDE}) and "
            "0.3 to 5 % in decoding. Tokens are target positions with padding; operations count matrix products alone."
        )
    if costs and overview.measured:
        yield (
            "Core-hours: of one core of this machine, from jobs that ran before, else from updates and searches of "
            "these networks timed here. Validation adds up to a third to training; CTranslate2 and ONNX Runtime decode "
            "faster than counted here."
        )
    if overview.warning:
        yield overview.warning
    if not overview.run:
        return
    space = f"Disk: about {overview.disk / 1e9:.1f} GB, downloads not counted. " if overview.disk is not None else ""
    yield f"{space}Memory: the largest job asks for {overview.memory / 1000:.1f} GB."
    if overview.after:
        waiting = "; ".join(f"{name} for {', '.join(others)}" for name, others in overview.after.items())
        yield f"Trainings that wait for others, while cores may be idle: {waiting}."
    sizes = overview.sizes
    pairs = f" Training pairs: {sizes.pairs:,} ({sizes.sources['pairs']})." if sizes.pairs else ""
    yield f"Subwords a sentence: {sizes.length:.3g} ({sizes.sources['length']}).{pairs}"
    if sizes.limit:
        yield limit_in_words(sizes.limit)
    if overview.auto and overview.vocabulary_size:
        trained = [(node.system, node.updates) for node in overview.nodes.values() if node.updates]
        updates = ", ".join(f"{system} {count:,}" for system, count in trained)
        yield (
            f"Settings that are auto come to about: updates {updates}; "
            f"{overview.vocabulary_size:,} subwords in the vocabulary."
        )
    if any(work.operations is None for node in overview.nodes.values() for work in node.work):
        yield "Distillation is not counted: the number of training pairs is not known; give --pairs."


def hours_text(overview: Overview, node: Node | Overview) -> str:
    """Hours of one core where this machine was measured, else GPU-hours; nothing where a node has no such work."""
    if overview.measured:
        return duration(node.core_hours) if node.core_hours else ""
    return _range(node.gpu_hours)


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
    if not overview.run:
        return f"{overview.experiment}: nothing to be done, {overview.jobs} jobs are done"
    hours = hours_text(overview, overview)
    text = f"{overview.experiment}: {overview.run} of {overview.jobs} jobs would run"
    return f"{text}, {hours} of one {'core' if overview.measured else 'GPU'}" if hours else text


# Their work is not known before.
COUNTED = "analyses and measuring speed count where they have run before"


def hours_caption(overview: Overview) -> str:
    """The caption of a plan: whether hours are of a core of this machine, or of a GPU."""
    if overview.measured:
        return f"Hours are of one core of this machine; {COUNTED}."
    shared = f" {overview.jobs_per_gpu} jobs at a time share a GPU." if overview.jobs_per_gpu > 1 else ""
    return f"Hours are of one {GPU}, each job by itself; {COUNTED}.{shared}"


def _short(value: float | None) -> str:
    if value is None:
        return ""
    for limit, unit in UNITS:
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"


def duration(hours: float | None) -> str:
    """Hours in words of a fitting unit: `5.4 h`, `12 min`, `8 s`, or `not known`."""
    if hours is None:
        return "not known"
    if hours >= 1:
        return f"{hours:.1f} h" if hours < 100 else f"{hours:.0f} h"
    return f"{60 * hours:.0f} min" if hours >= 1 / 60 else f"{3600 * hours:.0f} s"


def _range(hours: tuple[float, float] | None) -> str:
    if not hours or not hours[1]:
        return ""
    low, high = map(duration, hours)
    return low if low == high else f"{low} to {high}"


def as_json(overview: Overview) -> dict[str, Any]:
    """The overview for programs."""
    keys = list(overview.nodes)
    return {
        "experiment": overview.experiment,
        "recipe": overview.recipe,
        "jobs": overview.jobs,
        "run": overview.run,
        "rules": {rule: {"run": run, "jobs": jobs} for rule, (run, jobs) in overview.rules.items()},
        "gpu": GPU,
        "gpu_hours": overview.gpu_hours,
        "core_hours": overview.core_hours,
        "disk_bytes": overview.disk,
        "memory_mb": overview.memory,
        "training_tokens": training_tokens(overview),
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
                "jobs": node.jobs,
                "run": node.run,
                "rules": {rule: {"run": run, "jobs": jobs} for rule, (run, jobs) in node.rules.items()},
                "reasons": [{k: v for k, v in dataclasses.asdict(r).items() if v is not None} for r in node.reasons],
                "gpu_hours": node.gpu_hours,
                "core_hours": node.core_hours,
                "operations": node.operations,
                "tokens": node.tokens,
                "parameters": node.parameters,
                "updates": node.updates,
                "memory_mb": node.memory,
                "after": [keys.index(other) for other in overview.graph.predecessors(key)],
            }
            for key, node in overview.nodes.items()
        ],
    }
