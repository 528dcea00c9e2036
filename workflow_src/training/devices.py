"""Which device a training computes on when torchrun starts several processes of it."""

from __future__ import annotations

import contextlib
import os

import torch

from workflow_src.errors import ConfigError
from workflow_src.jobs import lease_devices
from workflow_src.runtime import gpus, processes, torchrun

LEASE_SECONDS = 60.0


def own_device(device: str, group: processes.Processes) -> str:
    """The device of this process: on each machine, the first process takes one for every process there."""
    local = torchrun.local_rank()
    # No process may look at GPUs before it has its own. One may wait for days until some are free; meanwhile all
    # exchange messages, since a connection that is silent for hours counts as broken.
    waiting, leased = local == 0, None
    while True:
        if waiting:
            with contextlib.suppress(gpus.GpuBusy):
                leased, waiting = lease_devices(device, torchrun.local_size(), LEASE_SECONDS), False
        states = group.gather((waiting, leased))
        if not any(waits for waits, _ in states):
            break
    leased = states[group.rank - local][1]
    if leased is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(leased)
    elif device == "cpu" or not torch.cuda.is_available():
        return device
    visible = torch.cuda.device_count()
    if visible < torchrun.local_size():
        raise ConfigError(
            "runtime.devices", torchrun.local_size(), problem=f"{visible} GPUs are visible here", hint="lower it"
        )
    # With a number in the setting there is one process on each machine.
    chosen = device if ":" in device else f"cuda:{local}"
    torch.cuda.set_device(chosen)
    group.use_cuda()
    return chosen
