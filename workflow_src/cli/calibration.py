"""How fast one core of this machine trains and decodes: measured once, and kept in `work/`.

A rate is floating-point operations a second, of matrix products. `workflow_src/training/calibrate.py`
measures in a process of its own, so that planning stays without torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from workflow_src.config.files import PROJECT
from workflow_src.errors import InputError
from workflow_src.records.atomic import read_json, write_json
from workflow_src.records.provenance import installed_version, processor

# Approximate seconds of measuring, without the start of the process.
SECONDS = 8.0
FILE = Path("work/calibration.json")
FORMAT = 4
# More cores than these in other processes are worth a word.
NOTABLE_LOAD = 0.25
LEAVE_OUT = "leave hours out: continuum estimate --no-calibration"


@dataclasses.dataclass(frozen=True)
class Rates:
    """Operations a second of one core, seconds that the start of a job takes, and cores that other processes used while
    these were measured."""

    training: float
    decoding: float
    start: float = 0.0
    other_load: float = 0.0


def core_hours(rates: Rates, operations: float, training: bool) -> float:
    """Hours of one core, with the start of the job."""
    return (rates.start + operations / (rates.training if training else rates.decoding)) / 3600


def load_warning(rates: Rates) -> str:
    """A sentence about rates that were measured on a busy machine; nothing where it was not."""
    if rates.other_load <= NOTABLE_LOAD:
        return ""
    return (
        f"warning: other processes used {rates.other_load:.1f} cores while this machine was measured: hours may be too "
        "high. Measure anew when it is idle: continuum estimate --calibrate."
    )


def saved_rates() -> Rates | None:
    """Rates that were measured on this machine before; None where there are none."""
    try:
        content = read_json(FILE)
        is_of_this_machine = content["format"] == FORMAT and content["machine"] == _machine()
        return Rates(**content["rates"]) if is_of_this_machine else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def calibrate() -> Rates:
    """Measure this machine, and keep its rates. Raises InputError where PyTorch is missing or the measuring fails."""
    # Commands that measure nothing start without it.
    from workflow_src.evaluation.speed.load import OtherLoad

    machine = _machine()
    if machine["torch"] is None:
        raise InputError("this machine", "cannot be measured without PyTorch", f"install it, or {LEAVE_OUT}")
    print(f"measuring one core of this machine: about {SECONDS:.0f} seconds", file=sys.stderr, flush=True)
    with OtherLoad() as load:
        measured = _measure()
    rates = Rates(**measured, other_load=load.cores)
    try:
        write_json(FILE, {"format": FORMAT, "machine": machine, "rates": dataclasses.asdict(rates)})
    except (OSError, InputError) as failure:
        print(f"warning: the calibration is not kept: {failure}", file=sys.stderr)
    return rates


def _machine() -> dict[str, str | None]:
    return {"processor": processor(), "torch": installed_version("torch")}


def _measure() -> dict[str, float]:
    paths = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "workflow_src.training.calibrate", str(SECONDS)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise InputError("this machine", f"cannot be measured ({last})", LEAVE_OUT)
    rates: dict[str, float] = json.loads(process.stdout)
    return rates
