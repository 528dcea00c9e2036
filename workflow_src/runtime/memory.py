"""Running out of memory: which errors mean it, and what is said."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

# Where Linux tells what the group of this process may take.
CONTAINER = Path("/sys/fs/cgroup")
# What can be raised; RuntimeError is what the CPU's allocator and the libraries on GPUs raise.
ERRORS = (torch.OutOfMemoryError, MemoryError, RuntimeError)
_SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


class OutOfMemory(ValueError):
    """Too little memory for what a setting asks for: the message names both."""


def is_out_of_memory(failure: BaseException) -> bool:
    """Whether an error means that memory ran out, on whatever device."""
    if isinstance(failure, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(failure, RuntimeError) and any(sign in str(failure) for sign in _SIGNS)


@contextlib.contextmanager
def told(message: str) -> Iterator[None]:
    """Raise OutOfMemory with `message` where memory runs out in here; `{}` in it stands for what the allocator said."""
    try:
        yield
    except ERRORS as failure:
        if not is_out_of_memory(failure):
            raise
        raise OutOfMemory(message.format(first_line(failure))) from failure


def first_line(failure: BaseException) -> str:
    """What an allocator said, without the stack that follows it."""
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]


def available(device: torch.device) -> int:
    """Bytes that this process may still take on a device, within the limits of a container and of `ulimit`."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    rooms = [psutil.virtual_memory().available]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        rooms.append(limit - psutil.Process().memory_info().vms)
    # Of a container; without a limit the file says "max". What is read from disk and kept gives way.
    with contextlib.suppress(OSError, ValueError, KeyError):
        limit, taken, about = (CONTAINER.joinpath(f"memory.{name}").read_text() for name in ("max", "current", "stat"))
        kept = int(dict(line.split() for line in about.splitlines())["inactive_file"])
        rooms.append(int(limit) - (int(taken) - kept))
    return max(0, min(rooms))


def release() -> None:
    """Give cached memory of a GPU back to it, so that parts of another size find room."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
