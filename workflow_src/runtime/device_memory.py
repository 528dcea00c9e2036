"""Running out of memory: how its errors are recognised and reported."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import torch

from workflow_src.errors import OutOfMemory

# Limits of the memory of this process's container (Linux).
CONTAINER = Path("/sys/fs/cgroup")
# Words of a RuntimeError, which the CPU's allocator and the libraries on GPUs raise.
_SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(failure: BaseException) -> bool:
    """Whether an error means that memory ran out, on whatever device."""
    if isinstance(failure, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(failure, RuntimeError) and any(sign in str(failure) for sign in _SIGNS)


@contextlib.contextmanager
def reported_as(describe: Callable[[str], tuple[str, str]]) -> Iterator[None]:
    """Raise OutOfMemory where memory runs out in here; `describe` makes its problem and fix from the allocator's
    message."""
    try:
        yield
    except Exception as failure:
        if not is_out_of_memory(failure):
            raise
        raise OutOfMemory(*describe(first_line(failure))) from failure


def first_line(failure: BaseException) -> str:
    """The message of an allocator, without the stack that follows it."""
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]


def available(device: torch.device) -> int:
    """Bytes that this process may still take on a device, within the limits of a container and of `ulimit`."""
    if device.type == "cuda":
        unused, _ = torch.cuda.mem_get_info(device)
        return unused + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = [psutil.virtual_memory().available]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        free.append(limit - psutil.Process().memory_info().vms)
    # Memory of a container; without a limit the file has "max". The kernel drops cached files when it needs memory.
    with contextlib.suppress(OSError, ValueError, KeyError):
        maximum, current, statistics = (
            CONTAINER.joinpath(f"memory.{name}").read_text() for name in ("max", "current", "stat")
        )
        cached = int(dict(line.split() for line in statistics.splitlines())["inactive_file"])
        free.append(int(maximum) - (int(current) - cached))
    return max(0, min(free))
