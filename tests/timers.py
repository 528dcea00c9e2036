"""Stand-ins for what processes of `measure_speed` make; importing them imports no torch, which takes seconds."""

from __future__ import annotations

import os
import time

from workflow_src.evaluation.speed.local import Local
from workflow_src.evaluation.speed.processes import WAITING, DeviceInfo


def ends(_order):
    os._exit(1)


class Faulty:
    """A timer that ends its process, or fails."""

    def time_row(self, row, lines, speed, largest_batch):
        if lines == ["end"]:
            os._exit(3)
        return {}[lines[0]]


def faulty(order):
    return Faulty(), DeviceInfo("cpu", None, "float32")


class Ends:
    """A translator that ends its process in batches of 16 and more."""

    last_timings = {"encode": 0.0, "decode": 0.0}

    def translate(self, lines, search, batch, systems, split):
        if batch >= 16:
            os._exit(9)
        # Larger batches are faster.
        time.sleep(0.01)
        return lines


def growing(order):
    return Local({"lvm": Ends()}, grow_batch=True), DeviceInfo("cuda", "A GPU", "float32")


def slow(order):
    """Takes longer than a test may wait."""
    print("begun", flush=True)
    time.sleep(60)


def thread_settings(order):
    """Reports the process's environment."""
    names = ("OMP_NUM_THREADS", *WAITING)
    return None, {name: os.environ.get(name) for name in names}


def multiplied(order):
    """Has used its threads."""
    import torch

    torch.set_num_threads(order.threads)
    side = torch.ones(800, 800)
    for _ in range(5):
        (side @ side).sigmoid()
    return None, None
