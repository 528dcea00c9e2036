"""A pretended CUDA device: within `pretended()`, device "cuda" is there on any machine, and CUDA's rules hold.

`docs/kernels.md` and CONTRIBUTING.md say what it is for; `tests/test_pretended_cuda.py` has each rule with a case that
breaks it. Not pretended: time, memory that runs out, streams that overlap, torch.compile, and other libraries.
"""

from __future__ import annotations

import contextlib
import unittest.mock
from collections import Counter
from collections.abc import Iterator

import torch

from pretended_cuda import driver
from pretended_cuda.functions import Calling
from pretended_cuda.machine import Machine, machine, replace_machine
from pretended_cuda.tensors import Dispatching


@contextlib.contextmanager
def pretended(gpus: int = 2) -> Iterator[Machine]:
    """Within this context the machine has so many GPUs, which nobody has used yet. Not for several threads."""
    replace_machine(gpus)
    machine.generators = driver.own_generators()
    with contextlib.ExitStack() as stack:
        for name, value in driver.REPLACED.items():
            stack.enter_context(unittest.mock.patch.object(torch.cuda, name, value))
        stack.enter_context(unittest.mock.patch.object(torch, "Generator", driver.Generator))
        stack.enter_context(unittest.mock.patch.object(torch.version, "cuda", "pretended"))
        # Parameters are replaced: their data, which C++ holds, cannot be.
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, before)
        stack.enter_context(Calling())
        stack.enter_context(Dispatching())
        yield machine


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """What the machine counts within this context."""
    before, counts = Counter(machine.counts), Counter()
    yield counts
    counts.update(machine.counts)
    counts.subtract(before)
    for name in [name for name, number in counts.items() if not number]:
        del counts[name]
