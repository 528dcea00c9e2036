"""Measure the speed of every row of an experiment in one run: milliseconds a sentence, sentences a second.

Every engine runs in a process of its own. A protocol is a device and a number of threads; under each, rows are timed
one sentence at a time and in batches.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.config.experiment import SpeedConfig
from workflow_src.data.lines import read_lines
from workflow_src.evaluation.speed import summary, timing, worker
from workflow_src.evaluation.speed.measured import FORMAT, check
from workflow_src.evaluation.speed.processes import Worker
from workflow_src.evaluation.speed.rows import Order, Protocol, SpeedRow, Timing, own_engine
from workflow_src.records.atomic import read_chosen, read_json, write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import ENGINE_SETTINGS, engines, families, fill
from workflow_src.runtime.device import cores
from workflow_src.serving import bundle
from workflow_src.serving.folders import bundle_files, bundles

OWN = own_engine()


def inputs_of(
    arguments: argparse.Namespace, rows: list[SpeedRow], folders: dict[str, dict[str, Path]]
) -> dict[str, Path]:
    """Files that the figures of `rows` come from: the source, the folders, and settings chosen on dev."""
    found = {"source": arguments.source}
    for kind, there in folders.items():
        needed = {system for row in rows if kind_of(row) == kind for system in row.systems}
        found |= bundle_files(there, needed, "bundle" if kind == OWN else kind)
    return found | {f"chosen {row.system} {row.name}": Path(row.chosen) for row in rows if row.chosen}


def kind_of(row: SpeedRow) -> str:
    """The kind of folders that a row's engine reads: bundles, or an export of its own."""
    return row.declared.exports or OWN


def exports() -> list[str]:
    """Kinds of folders that engines read beside bundles."""
    return [engine.exports for engine in engines().values() if engine.exports]


def gpu(requested: str) -> str | None:
    """The GPU to measure on for a device setting (auto, cpu, cuda, cuda:N), or None."""
    if requested == "cpu":
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    return "cuda" if requested == "auto" else requested


def protocols(wanted: list[str], device: str | None, threads: int) -> list[Protocol]:
    """The protocols to measure under; a GPU that is there comes first.

    Raises ValueError when a GPU is wanted and `device` is None. With one core, all threads are one thread: both are
    measured once.
    """
    if "gpu" in wanted and device is None:
        raise ValueError(
            "setting speed.protocols has gpu, but there is none here (or runtime.device is cpu); remove it."
        )
    names = [name for name in dict.fromkeys(wanted) if name != "gpu"]
    if threads == 1 and {"cpu-1-thread", "cpu-all-threads"} <= set(names):
        names.remove("cpu-all-threads")
    found = [Protocol(name, "cpu", 1 if name == "cpu-1-thread" else threads) for name in names]
    return ([Protocol("gpu", device, 1)] if device else []) + found


def runs_on(row: SpeedRow, device: str) -> bool:
    """Whether a row can be computed there: float16 is for GPUs, and ONNX Runtime serves on CPUs here."""
    kind = device.split(":")[0]
    return kind in row.declared.devices and not (kind == "cpu" and row.compute_type == "float16")


def orders(
    rows: list[SpeedRow], folders: dict[str, dict[str, Path]], protocol: Protocol, precision: str
) -> dict[str, Order]:
    """What each engine's process is told, by engine. `folders` by system: own bundles, and what engines export."""
    found: dict[str, Order] = {}
    for row in rows:
        there = folders[kind_of(row)]
        # What ranks candidates works in the same process.
        for system in row.systems:
            if system not in there:
                given = ", ".join(sorted(there)) or "none"
                raise ValueError(f'speed: row {row.name} needs the bundle of system "{system}"; given: {given}.')
        if row.engine not in found:
            settings = {key: row.handed[key] for key in ENGINE_SETTINGS if key in row.handed}
            found[row.engine] = Order(row.engine, protocol.device, precision, protocol.threads, settings)
        found[row.engine].folders |= {system: there[system] for system in row.systems}
    for engine, order in found.items():
        # What only ranks or adds to scores is no search of this engine's.
        decoded = {row.system for row in rows if row.engine == engine}
        order.in_roles = tuple(sorted(order.folders.keys() - decoded))
    return found


def operations(rows: list[SpeedRow], folders: dict[str, Path]) -> dict[tuple[str, str], float]:
    """Operations of a step at a position, by (system, search), from the sizes that bundles tell."""
    found = {}
    for row in rows:
        search, key = row.search, (row.system, row.search.name)
        path = folders[row.system] / "bundle.json" if row.system in folders else None
        if search.step_cost is None or key in found or path is None or not path.exists():
            continue
        description = read_json(path)
        if description.get("models"):
            networks = [(name, family) for name, family in bundle.networks(description)]
            filled = fill(search.needs, networks, bundle.roles(description))
            found[key] = search.step_cost({role: _weights(description["models"][n]) for role, n in filled.items()})
    return found


def _weights(part: dict[str, Any]) -> dict[str, int]:
    """Weights by part of a network that a bundle describes."""
    family = families()[part["family"]]
    vocabulary = part["sizes"]["target"] + len(part["sizes"].get("symbols", ()))
    return family.weights(family.model.model_validate(part["model"]), vocabulary)


def start(
    rows: list[SpeedRow],
    folders: dict[str, dict[str, Path]],
    protocol: Protocol,
    precision: str,
    lines: list[str],
    stack: contextlib.ExitStack,
) -> tuple[dict[str, Worker], dict[str, str]]:
    """A process for each engine, which ends with `stack`; and why others were left out.

    On a GPU, another library than our own may miss libraries of its own: its rows are left out there, with the reason.
    """
    timers: dict[str, Worker] = {}
    left_out: dict[str, str] = {}
    for engine, order in orders(rows, folders, protocol, precision).items():
        try:
            timer = Worker(worker.make, order)
            stack.callback(timer.close)
            timer.warm(next(row for row in rows if row.engine == engine), lines)
            timers[engine] = timer
        except ValueError as failure:
            if engine == OWN or protocol.device == "cpu":
                raise
            jobs.log.warning("%s leaves out %s: %s", protocol.name, engine, failure)
            left_out[engine] = str(failure)
    return timers, left_out


def measure(
    protocol: Protocol,
    rows: list[SpeedRow],
    speed: SpeedConfig,
    lines: list[str],
    folders: dict[str, dict[str, Path]],
    precision: str,
) -> dict[str, Any]:
    """Everything that is measured under one protocol."""
    rows = [row for row in rows if runs_on(row, protocol.device)]
    if not lines:
        raise ValueError("there are no sentences to measure speed with; give a source text that is not empty.")
    with contextlib.ExitStack() as stack:
        timers, left_out = start(rows, folders, protocol, precision, lines, stack)
        rows = [row for row in rows if row.engine in timers]
        how = Timing(speed.warmup, speed.repeats, speed.batch)
        measured = timing.measure(timers, rows, lines, how, lambda text: jobs.log.info("%s: %s", protocol.name, text))
        about = {engine: timer.about for engine, timer in timers.items()}
        lengths = next(iter(timers.values())).lengths(lines)
    found = summary.results(rows, measured, lengths, operations(rows, folders[OWN]))
    first = about.get(OWN) or next(iter(about.values()))
    told = speed.model_dump(mode="json", exclude={"protocols"}) | {
        "name": protocol.name,
        "sentences": len(lines),
        "device": first.device,
        "device_name": first.device_name,
        "threads": protocol.threads,
        "precision": first.precision,
        "left_out": left_out,
        "engines": {engine: one.precision for engine, one in about.items()},
        "baseline": found.pop("baseline"),
        "other_load_cores": measured.load,
        "disturbed_rounds": sum(load > timing.DISTURBED_SHARE for load in measured.load),
        "redone_rounds": measured.redone,
        "disturbed_above_cores": timing.DISTURBED_SHARE,
    }
    return found | {"protocol": told}


def run(arguments: argparse.Namespace) -> str:
    settings, speed = arguments.settings, SpeedConfig.model_validate(arguments.settings["speed"])
    settings["rows"] = [row | (read_chosen(row["chosen"]) if "chosen" in row else {}) for row in settings["rows"]]
    rows = [SpeedRow.of(row) for row in settings["rows"]]
    lines = list(itertools.islice(read_lines(arguments.source), speed.sentences))
    folders = {OWN: bundles(arguments.bundles)}
    folders |= {export: bundles(getattr(arguments, export)) for export in exports()}
    chosen = protocols(list(speed.protocols), gpu(arguments.device), cores())
    found = [measure(protocol, rows, speed, lines, folders, arguments.precision) for protocol in chosen]
    inputs = inputs_of(arguments, rows, folders)
    # The first protocol's figures are those of the table.
    content = found[0] | {"format": FORMAT, "protocols": found, "provenance": provenance(settings, inputs)}
    check(content, arguments.output)
    write_json(arguments.output, content)
    names = ", ".join(protocol.name for protocol in chosen)
    redone = sum(one["protocol"]["redone_rounds"] for one in found)
    return f"{arguments.output}: {len(rows)} rows, {names}, {len(lines)} sentences, {redone} rounds redone"


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--bundles", nargs="+", required=True, metavar="SYSTEM=FOLDER")
    for export in exports():
        made.add_argument(f"--{export}", nargs="*", default=[], metavar="SYSTEM=FOLDER", help="folders of that engine")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    jobs.add_runtime(made)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
