"""Speed of one core of this machine on the systems of an experiment: measured, and kept in `work/`.

A rate is floating-point operations a second, as `config/costs.py` counts them, of one system in training and in
decoding. `workflow_src/training/calibrate.py` takes the times in a process of its own, so that planning stays without
torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workflow_src.config.costs import decoding_operations, operations_a_position, sentence_length
from workflow_src.config.files import PROJECT
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import Decode, System
from workflow_src.errors import InputError
from workflow_src.records.atomic import fingerprint, read_json, write_json
from workflow_src.records.provenance import processor
from workflow_src.registry import families

# Approximate seconds of a calibration, without the start of the process.
SECONDS = 30.0
FILE = Path("work/calibration.json")
FORMAT = 2
# Beside the rates of a system: cores that other processes used meanwhile; more than the second is worth a word.
LOAD, NOTABLE_LOAD = "other_load", 0.25
LEAVE_OUT = "leave hours out: continuum estimate --no-calibration"


@dataclasses.dataclass(frozen=True)
class Rates:
    """Operations a second of one core by system: in training, and in decoding where the system decodes by itself.

    `usual`: rates for a system that was not measured, in training and in decoding; None where none was. `other_load`:
    cores that other processes used while the systems were measured, at most.
    """

    training: dict[str, float]
    decoding: dict[str, float]
    usual: tuple[float | None, float | None] = (None, None)
    other_load: float = 0.0

    def rate_of(self, system: str, training: bool) -> float | None:
        """The rate of a system, or else the usual one; None where no system was measured."""
        rates = self.training if training else self.decoding
        return rates.get(system) or self.usual[not training]


def load_warning(rates: Rates) -> str:
    """A sentence about rates that were measured on a busy machine; nothing where it was not."""
    if rates.other_load <= NOTABLE_LOAD:
        return ""
    return (
        f"warning: other processes used {rates.other_load:.1f} cores while this machine was measured: hours may be too "
        "high. Measure anew when it is idle: continuum estimate --calibrate."
    )


def saved_rates(plan: Plan) -> Rates | None:
    """Rates measured on this machine before, also with systems of other sizes; None where there are none."""
    by_key = _rates_by_key()
    return _rates(_keys(_request(plan, None)), by_key) if by_key else None


def calibrate(plan: Plan, length: float | None = None, measure_all: bool = False) -> Rates:
    """The rates of this machine; missing ones, or all with `measure_all`, are measured in about half a minute.

    Raises InputError where PyTorch is missing or the measuring fails.
    """
    # Commands that measure nothing start without it.
    from workflow_src.evaluation.speed.timing import OtherLoad

    request = _request(plan, length)
    keys, by_key = _keys(request), {} if measure_all else _rates_by_key()
    missing = [name for name, key in keys.items() if key not in by_key]
    if missing:
        if find_spec("torch") is None:
            raise InputError("this machine", "cannot be measured without PyTorch", f"install it, or {LEAVE_OUT}")
        print(
            f"measuring one core of this machine with {len(missing)} systems: about {SECONDS:.0f} seconds",
            file=sys.stderr,
            flush=True,
        )
        # Systems of the same sizes are measured once.
        first = {keys[name]: name for name in reversed(missing)}
        with OtherLoad() as load:
            times = _measure(request | {"measured": sorted(first.values())})
        by_key |= {key: _operations(plan, name, times[name]) | {LOAD: load.cores} for key, name in first.items()}
        _keep(by_key)
    return _rates(keys, by_key)


def _machine() -> dict[str, str]:
    return {"processor": processor(), "torch": version("torch")}


def _rates_by_key() -> dict[str, dict[str, float]]:
    """Rates by key that were measured on this machine: `training`, and `decoding` where a system decodes."""
    try:
        content = read_json(FILE)
        is_of_this_machine = content["format"] == FORMAT and content["machine"] == _machine()
        return content["rates"] if is_of_this_machine else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _keep(rates: dict[str, dict[str, float]]) -> None:
    try:
        write_json(FILE, {"format": FORMAT, "machine": _machine(), "rates": rates})
    except OSError as failure:
        print(f"warning: the calibration is not kept: {failure}", file=sys.stderr)


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    paths = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "workflow_src.training.calibrate"]
    process = subprocess.run(command, input=json.dumps(request), env=environment, capture_output=True, text=True)
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise InputError("this machine", f"cannot be measured ({last})", LEAVE_OUT)
    return json.loads(process.stdout)


def _request(plan: Plan, length: float | None) -> dict[str, Any]:
    """Input of the measuring process: systems, and all other settings that their times depend on."""
    subwords = plan.recipe.subwords
    sizes = {"source": subwords.vocabulary_size, "target": subwords.vocabulary_size, "joint": subwords.joint}
    return {
        "systems": {name: _described(plan, system) for name, system in plan.loaded.systems.items()},
        "sizes": sizes,
        "length": sentence_length(plan, length),
        "precision": plan.config.runtime.precision,
        "seconds": SECONDS,
    }


def _described(plan: Plan, system: System) -> dict[str, Any]:
    decode = _decode(plan, system)
    search = decode and {
        "search": decode.search,
        "settings": decode.combinations()[0].model_dump(mode="json"),
        "batch": decode.batch,
    }
    return {
        "family": system.family.name,
        "model": system.model.model_dump(mode="json"),
        "objective": system.objective.model_dump(mode="json"),
        "training": system.training.model_dump(mode="json"),
        "filled": system.filled,
        "search": search,
    }


def _decode(plan: Plan, system: System) -> Decode | None:
    """The first decode of a system that works with no other system, our own engine before others."""
    alone = [d for d in plan.loaded.decodes if d.system == system.name and not plan.systems_in_roles(d)]
    return min(alone, key=lambda decode: not decode.own_engine, default=None)


def _keys(request: dict[str, Any]) -> dict[str, str]:
    """Key of everything that a system's rates depend on, for each system that is trained by updates.

    Rates hardly change with the length of sentences, which encoding counts later: it is no part of the key.
    """
    systems = request["systems"]
    common = {name: request[name] for name in ("sizes", "precision")}

    def key(name: str) -> str:
        system = systems[name]
        models = {role: systems[other]["model"] for role, other in system["filled"].items()}
        sized = {setting: system["training"][setting] for setting in ("batch_tokens", "accumulate")}
        sections = {setting: system[setting] for setting in ("family", "model", "objective", "search")}
        return fingerprint(common | sections | sized | {"others": models})

    return {name: key(name) for name, system in systems.items() if families()[system["family"]].updated}


def _operations(plan: Plan, name: str, times: dict[str, Any]) -> dict[str, float]:
    """Operations a second of a system from its times."""
    system = plan.system(name)
    rates = {"training": operations_a_position(system, plan) / times["position"]}
    if times.get("decoding"):
        decode = _decode(plan, system)
        assert decode is not None, "its decoding was measured"
        settings, length = decode.combinations()[0], times["decoding"]["length"]
        if not system.family.autoregressive:
            # Positions that are cut off an output are computed too.
            length = max(length, times["decoding"]["source_length"])
        rates["decoding"] = decoding_operations(plan, system, settings, 1, length) / times["decoding"]["seconds"]
    return rates


def _rates(keys: dict[str, str], by_key: dict[str, dict[str, float]]) -> Rates:
    """The rates of systems by name, from those by key."""

    def by_system(work: str) -> dict[str, float]:
        return {name: by_key[key][work] for name, key in keys.items() if work in by_key.get(key, {})}

    def usual(work: str) -> float | None:
        measured = [rates[work] for rates in by_key.values() if work in rates]
        return statistics.median(measured) if measured else None

    # Those of `usual` too.
    load = max((rates[LOAD] for rates in by_key.values()), default=0.0)
    return Rates(by_system("training"), by_system("decoding"), (usual("training"), usual("decoding")), load)
