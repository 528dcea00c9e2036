"""Running out of memory: which errors mean it, and what is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

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


def release() -> None:
    """Give cached memory of a GPU back to it, so that parts of another size find room."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
