"""One training in several processes: each computes its parts of an update's batch, and gradients are added up.

Processes are started by torchrun, which gives each its RANK. Process 0 alone writes files. Gradients travel once an
update, after a process has finished all its parts.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workflow_src.runtime import device_memory
from workflow_src.runtime.signals import PeerFailed

# Gradients are sent in pieces of so many numbers: large enough for full speed, small beside a model.
BUCKET = 2**24
# Process 0 may write a state or validate alone for a while before the others hear of it.
TIMEOUT = datetime.timedelta(hours=2)


class Group:
    """The processes of one training; `Group()` is this process alone, where all methods are the identity."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def share(self, items: Sequence[Any]) -> list[Any]:
        """The items that this process computes."""
        return list(items[self.rank :: self.size])

    def from_first(self, value: Any) -> Any:
        """Process 0's value, everywhere."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank."""
        return [value]

    def largest(self, value: int) -> int:
        """The largest of all processes' values."""
        return value

    def wait(self) -> None:
        """Wait until all processes are here."""

    def add_up(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in place."""
        return values

    def mean_gradients(self, gradients: list[Tensor], count: float | Tensor) -> None:
        """Replace gradients by their sums over all processes divided by `count`."""
        torch._foreach_div_(gradients, count)

    def close(self) -> None:
        pass


class Processes(Group):
    """The group of a process started by torchrun. Objects and CPU tensors travel by gloo, CUDA tensors by NCCL."""

    def __init__(self) -> None:
        # Functions of this module keep the default group of the time of its import. Imported later, by an optimiser,
        # they would keep gloo's threads after `close`: one that works while Python ends may abort the process.
        import torch.distributed.nn  # noqa: F401

        dist.init_process_group("gloo", timeout=TIMEOUT)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._devices: dist.ProcessGroup | None = None

    def use_cuda(self) -> None:
        """Send gradients between GPUs. Call it when each process has chosen its GPU."""
        self._devices = dist.new_group(backend="nccl", timeout=TIMEOUT)

    def from_first(self, value: Any) -> Any:
        values = [value]
        with _peers():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        values = [None] * self.size
        with _peers():
            dist.all_gather_object(values, value)
        return values

    def largest(self, value: int) -> int:
        values = torch.tensor(value)
        with _peers():
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return int(values)

    def wait(self) -> None:
        with _peers():
            dist.barrier()

    def add_up(self, values: Tensor) -> Tensor:
        with _peers():
            dist.all_reduce(values, group=self._devices)
        return values

    def mean_gradients(self, gradients: list[Tensor], count: float | Tensor) -> None:
        for bucket in _buckets(gradients):
            flat = self.add_up(torch.cat([gradient.reshape(-1) for gradient in bucket])).div_(count)
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [part.view_as(g) for part, g in zip(parts, bucket, strict=True)])

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors in their order, in runs of one type and at most BUCKET numbers (or of one tensor)."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(t.numel() for t in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


# Words of the libraries for a broken connection to another process; gloo has no error of its own for it.
_BROKEN = ("connection", "closed by peer", "timed out", "timeout", "broken pipe", "socket", "gloo/transport")


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Raise PeerFailed where a library reports a broken connection; other errors are this process's own."""
    try:
        yield
    except RuntimeError as failure:
        message = device_memory.first_line(failure)
        broken = isinstance(failure, (dist.DistNetworkError, dist.DistStoreError))
        if device_memory.is_out_of_memory(failure) or not (broken or any(sign in message.lower() for sign in _BROKEN)):
            raise
        raise PeerFailed(f"another process of this training ended, so this one stops too ({message}).") from failure
