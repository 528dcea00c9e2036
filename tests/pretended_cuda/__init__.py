"""A pretended CUDA device: within `pretended()`, device "cuda" is there on any machine, and CUDA's rules hold.

`docs/kernels.md` and CONTRIBUTING.md say what it is for; `tests/test_pretended_cuda.py` has each rule with a case that
breaks it. Not pretended: time, how much memory is in use, streams that overlap, torch.compile, and other libraries.
"""

from __future__ import annotations

import contextlib
import os
import unittest.mock
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed

from pretended_cuda import driver, nccl
from pretended_cuda.functions import Calling
from pretended_cuda.machine import MEMORY, VISIBLE, Machine, machine, replace_machine
from pretended_cuda.tensors import Dispatching

# By module.
REPLACED = {torch.cuda: driver.REPLACED, torch.backends.cudnn: driver.NO_CUDNN, torch.distributed: nccl.REPLACED}


@contextlib.contextmanager
def pretended(gpus: int = 2, memory: int = MEMORY) -> Iterator[Machine]:
    """Within this context the machine has `gpus` fresh GPUs of `memory` bytes each. Not for several threads.

    CUDA_VISIBLE_DEVICES, which numbers the machine's own GPUs, is not set there at first, and as before afterwards.
    """
    with unittest.mock.patch.dict(os.environ):
        os.environ.pop(VISIBLE, None)
        with _replaced(gpus, memory):
            yield machine


@contextlib.contextmanager
def _replaced(gpus: int, memory: int) -> Iterator[None]:
    replace_machine(gpus, memory)
    machine.generators = driver.own_generators()
    with contextlib.ExitStack() as stack:
        for module, values in REPLACED.items():
            for name, value in values.items():
                stack.enter_context(unittest.mock.patch.object(module, name, value))
        stack.enter_context(unittest.mock.patch.object(torch, "Generator", driver.Generator))
        stack.enter_context(unittest.mock.patch.object(torch.version, "cuda", "pretended"))
        # Parameters are replaced: their data, which C++ holds, cannot be.
        previous = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, previous)
        stack.enter_context(Calling())
        stack.enter_context(Dispatching())
        yield


FOLDER = Path(__file__).resolve().parent
# Variables of the environment: the number of GPUs that are pretended in a process, and the bytes of each.
VARIABLE = "CONTINUUM_PRETENDED_GPUS"
BYTES = "CONTINUUM_PRETENDED_MEMORY"


def environment(gpus: int = 2, memory: int = MEMORY) -> dict[str, str]:
    """Further variables of the environment, for processes of Python that have pretended GPUs from their start."""
    paths = [str(FOLDER / "site"), str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    programs = f"{FOLDER / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {VARIABLE: str(gpus), BYTES: str(memory)}
    return variables | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PATH": programs}


_whole_process = contextlib.ExitStack()


def begin() -> None:
    """Pretend GPUs until this process ends, as many as its environment says."""
    _whole_process.enter_context(_replaced(int(os.environ[VARIABLE]), int(os.environ[BYTES])))


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts of the machine within this context."""
    previous, counts = Counter(machine.counts), Counter()
    yield counts
    counts.update(machine.counts)
    counts.subtract(previous)
    for name in [name for name, number in counts.items() if not number]:
        del counts[name]
