"""Measure the speed of every row of an experiment in one run: milliseconds a sentence, sentences a second.

Every engine runs in a process of its own. A protocol is a device and a number of threads; under each, rows are timed
one sentence at a time and in batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.config.roles import fill
from workflow_src.data.lines import read_lines
from workflow_src.errors import ArtifactError, InputError, TimingFailed
from workflow_src.evaluation.manifest import Key
from workflow_src.evaluation.quality.choosing import read_choice
from workflow_src.evaluation.speed import processes, summary, timing
from workflow_src.evaluation.speed.measured import FORMAT, Measurement, Speed
from workflow_src.evaluation.speed.processes import DeviceInfo, Order, Worker
from workflow_src.jobs import DeviceJobInputs, log, missing_folder, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import default_engine, engines, searches
from workflow_src.serving import bundle
from workflow_src.serving.folders import bundle_files
from workflow_src.spec import MODEL, Frozen, Search

OWN = default_engine().name
NO_GPU = "there is no GPU here, or runtime.device is cpu; remove gpu from speed.protocols"
ONE_THREAD = "this job has one CPU thread, which cpu-1-thread measures; on a cluster raise runtime.speed_threads"
# Subwords of the sentence whose operations are counted, where the networks have positions for it.
COUNTED_LENGTH = 20
# Folders by their kind (`OWN`: bundles, else what an engine exports) and system.
Folders = dict[str, dict[str, Path]]


@dataclasses.dataclass(frozen=True)
class TimingProtocol:
    """A device and a number of threads for timing; `problem`: why it cannot be used here, if so."""

    name: str
    device: str
    threads: int
    problem: str = ""


class SpeedSettings(Frozen):
    speed: SpeedConfig
    reference: Key | None = Field(None, description="system and name of the row that speed-ups refer to")
    rows: tuple[Decode, ...] = Field(description="the decodes to time")


class Inputs(DeviceJobInputs):
    alone_on_gpu = True
    settings: SpeedSettings = Field(description="how speed is measured, and the rows")
    bundles: dict[str, Path] = Field(description="exported folders by system")
    exports: Folders = Field({}, description="folders that other engines read, by kind and system")
    chosen: dict[str, Path] = Field({}, description="files of settings chosen on dev, by SYSTEM/NAME of the row")
    source: Path = Field(description="normalised text, one sentence a line")
    output: Path

    @property
    def rows(self) -> list[Decode]:
        """The rows with the settings that dev chose."""
        chosen = {name: read_choice(path).chosen for name, path in self.chosen.items()}
        return [
            row.with_values(chosen[name]) if (name := "/".join(row.key)) in chosen else row
            for row in self.settings.rows
        ]


def files_of(rows: Sequence[Decode], folders: Folders) -> dict[str, Path]:
    """Files of folders that the figures of `rows` come from."""
    files: dict[str, Path] = {}
    for kind, by_system in folders.items():
        systems = {system for row in rows if kind_of(row, folders) == kind for system in systems_of(row)}
        files |= bundle_files(by_system, systems, "bundle" if kind == OWN else kind)
    return files


def systems_of(row: Decode) -> list[str]:
    """Names of a row's own system and of others in its settings."""
    return [row.system, *row.others.values()]


def kind_of(row: Decode, folders: Folders) -> str:
    """The kind of folders that a row's engine reads: bundles, or an export of its own.

    Systems that were made elsewhere have no exports: an engine reads their bundle.
    """
    kind = engines()[row.engine].exports or OWN
    return kind if row.system in folders.get(kind, {}) else OWN


def gpu(requested: str) -> str | None:
    """The GPU to measure on for a device setting (auto, cpu, cuda, cuda:N), or None."""
    if requested == "cpu":
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    return "cuda" if requested == "auto" else requested


def protocols(requested: Sequence[str], device: str | None, threads: int) -> list[TimingProtocol]:
    """The protocols to measure under; the GPU `device` comes first. One that is requested and not there is not usable.

    With one thread, `cpu-all-threads` would measure what `cpu-1-thread` does, and is not usable beside it.
    """
    on_cpu = []
    for name in dict.fromkeys(requested):
        if name != "gpu":
            twice = name == "cpu-all-threads" and threads == 1 and "cpu-1-thread" in requested
            used = 1 if name == "cpu-1-thread" else threads
            on_cpu.append(TimingProtocol(name, "cpu", used, ONE_THREAD if twice else ""))
    on_gpu = []
    if device or "gpu" in requested:
        on_gpu.append(TimingProtocol("gpu", device or "cuda", 1, "" if device else NO_GPU))
    return on_gpu + on_cpu


def orders(rows: Sequence[Decode], folders: Folders, protocol: TimingProtocol, precision: str) -> dict[str, Order]:
    """Folders and settings for the process of each engine, by engine."""
    by_engine: dict[str, Order] = {}
    for row in rows:
        kind = kind_of(row, folders)
        by_system = folders[kind]
        # Systems that rank candidates work in the same process.
        for system in systems_of(row):
            if system not in by_system:
                raise missing_folder(system) if kind == OWN else missing_folder(system, f"exports.{kind}")
        how = protocol.device, precision, protocol.threads
        order = by_engine.setdefault(row.engine_word, Order(row.engine, row.compute_type, *how))
        order.folders |= {system: by_system[system] for system in systems_of(row)}
    for engine, order in by_engine.items():
        # Systems that only rank or add to scores are not decoded by this engine.
        decoded = {row.system for row in rows if row.engine_word == engine}
        order.in_roles = tuple(sorted(order.folders.keys() - decoded))
    return by_engine


def operations(rows: Sequence[Decode], bundles: Mapping[str, Path]) -> dict[tuple[str, str], float]:
    """Operations of a step for a subword, by (system, search); those that cannot be counted are left out, and the log
    names them."""
    counts: dict[tuple[str, str], float] = {}
    for key in dict.fromkeys((row.system, row.search) for row in rows):
        system, search = key[0], searches()[key[1]]
        if search.even_steps and search.series and system in bundles:
            try:
                counts[key] = _operations_of_a_step(search, search.series, bundles[system])
            except Exception as failure:
                # Networks and searches of plug-ins may need more than zeros.
                reason = " ".join(str(failure).split()) or type(failure).__name__
                log.warning("operations of a step of %s with %s are not counted: %s", search.title, system, reason)
    return counts


def _operations_of_a_step(search: Search, series: str, folder: Path) -> float:
    """For a subword: what one step more of the `series` adds, with networks of the sizes that a bundle describes."""
    from workflow_src.training import counting
    from workflow_src.types import max_positions

    description = bundle.read_bundle(folder)
    names = fill(search.needs, bundle.networks(description), bundle.roles(description))
    described = {role: description.models[name] for role, name in names.items()}
    networks = {
        role: counting.without_weights(network.family, network.model, network.sizes.model_dump(exclude_unset=True))
        for role, network in described.items()
    }
    sizes = described[MODEL].sizes
    # Both sides may have an end symbol.
    length = max(1, min(COUNTED_LENGTH, *(max_positions(network) - 2 for network in networks.values())))
    fewer, more = (
        counting.search(
            networks, search.settings(**{series: search.first_value + steps}), sizes.target + len(sizes.symbols), length
        )
        for steps in (0, 1)
    )
    return (more - fewer) / length


def start_workers(
    protocol_name: str, engine_orders: Mapping[str, Order], stack: contextlib.ExitStack
) -> tuple[dict[str, Worker], dict[str, TimingFailed]]:
    """A process for each engine, which ends with `stack`; and why other engines do not start.

    On a GPU, an engine may lack libraries that it needs.
    """
    timers: dict[str, Worker] = {}
    failures: dict[str, TimingFailed] = {}
    started: dict[str, Worker] = {}
    for engine, order in engine_orders.items():
        started[engine] = Worker(processes.make, order)
        stack.callback(started[engine].close)
    for engine, timer in started.items():
        try:
            timer.wait()
            timers[engine] = timer
        except (InputError, TimingFailed) as failure:
            failures[engine] = timing.timing_failed(failure, engine)
            log.warning("%s does not start: %s\n%s", protocol_name, failure, failures[engine].trace)
    return timers, failures


def lengths_of(
    lines: list[str], timers: Mapping[str, Worker], rows: Sequence[Decode], reference: Key | None
) -> list[int]:
    """Source subwords of every line: by the system of the reference row, or else of the first row whose process can
    count them; empty where none can. Systems that only rank or add to scores may have other subwords."""
    for row in sorted(rows, key=lambda row: row.key != reference):
        with contextlib.suppress(TimingFailed):
            return timers[row.engine_word].lengths(lines, row.system)
    return []


def measure(
    protocol: TimingProtocol,
    rows: Sequence[Decode],
    speed: SpeedConfig,
    lines: list[str],
    folders: Folders,
    precision: str,
    reference: Key | None,
) -> Measurement:
    """All figures under one protocol, its conditions, and the rows that could not be timed, with the reasons."""
    rows = [row for row in rows if row.runs_on(protocol.device.split(":")[0])]
    timings = timing.Timings({}, [], 0)
    lengths: list[int] = []
    device_infos: dict[str, DeviceInfo] = {}
    with contextlib.ExitStack() as stack:
        engine_orders = orders(rows, folders, protocol, precision)
        if not protocol.problem:
            timers, failures = start_workers(protocol.name, engine_orders, stack)
        else:
            timers, failures = {}, {engine: TimingFailed(engine, protocol.problem) for engine in engine_orders}
        if timers:
            device_infos = {engine: timer.device for engine, timer in timers.items()}
            usable_rows = [row for row in rows if row.engine_word in timers]
            lengths = lengths_of(lines, timers, usable_rows, reference)
            report = functools.partial(log.info, "%s: %s", protocol.name)
            timings = timing.measure(timers, usable_rows, lines, speed, report)
        timings.failures |= {row.key: failures[row.engine_word] for row in rows if row.engine_word in failures}
    absent = DeviceInfo(protocol.device.split(":")[0], None, precision)
    device_info = device_infos.get(OWN) or next(iter(device_infos.values()), absent)
    conditions = {
        "name": protocol.name,
        "sentences": len(lines),
        "warmup": speed.warmup,
        "repeats": speed.repeats,
        "threads": protocol.threads,
        **dataclasses.asdict(device_info),
        "engines": {engine: answer.precision for engine, answer in device_infos.items()},
        "disturbed_above_cores": timing.DISTURBED_SHARE,
    }
    return summary.measurement(rows, timings, conditions, reference, lengths, operations(rows, folders[OWN]))


def run(inputs: Inputs) -> str:
    from workflow_src.runtime.device import cores

    speed, machine = inputs.settings.speed, inputs.machine
    rows = inputs.rows
    lines = list(itertools.islice(read_lines(inputs.source), speed.sentences))
    if not lines:
        raise ArtifactError(inputs.source, "has no sentences to measure speed with", "give a text that is not empty")
    folders = {OWN: inputs.bundles} | inputs.exports
    # Before anything is timed: this reads the bundles, and refuses what is none.
    files = {"source": inputs.source, **files_of(rows, folders)}
    files |= {f"chosen {name.replace('/', ' ')}": path for name, path in inputs.chosen.items()}
    record = provenance(recorded(inputs.settings.model_copy(update={"rows": tuple(rows)})), files)
    measured = [
        measure(protocol, rows, speed, lines, folders, machine.precision, inputs.settings.reference)
        for protocol in protocols(speed.protocols, gpu(machine.device), cores())
    ]
    content = Speed(protocols=tuple(measured), provenance=record)
    write_json(inputs.output, {"format": FORMAT, **content.model_dump(mode="json")})
    conditions = [measurement.protocol for measurement in measured]
    names = ", ".join(protocol.name for protocol in conditions)
    redone = sum(protocol.redone_rounds for protocol in conditions)
    failed = sum(len(protocol.not_timed) for protocol in conditions)
    failures = f", {failed} rows not timed" if failed else ""
    return f"{inputs.output}: {len(rows)} rows, {names}, {len(lines)} sentences, {redone} rounds redone{failures}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
