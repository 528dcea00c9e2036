"""The pretended machine: its GPUs, which of them this process sees, what it counts, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable

import torch

CPU = torch.device("cpu")
MEMORY = 80 * 2**30
VISIBLE = "CUDA_VISIBLE_DEVICES"


class CaptureRefused(RuntimeError):
    """An operation that cannot be part of a graph: its capture is lost."""


@dataclasses.dataclass
class Machine:
    """GPUs by UUID, and the state of CUDA in this process.

    counts  operators, views, synchronisations, copies to the device, copies to the host, graph launches
    """

    uuids: tuple[str, ...]
    # An operator whose results take more bytes than this is out of memory.
    memory: int = MEMORY
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    # Reasons of synchronisations, in order.
    waits: list[str] = dataclasses.field(default_factory=list)
    # Operators that autocast gave bfloat16 or float16.
    narrowed: set[str] = dataclasses.field(default_factory=set)
    sync_mode: str | int = "default"
    current: int = 0
    # Called with every operator while a graph is captured.
    capture: Callable | None = None
    # Copies to the host that are under way: (target, values).
    pending: list[tuple[torch.Tensor, torch.Tensor]] = dataclasses.field(default_factory=list)
    generators: dict[int, torch.Generator] = dataclasses.field(default_factory=dict)
    # Groups of processes that send tensors of GPUs.
    nccl: list = dataclasses.field(default_factory=list)
    _visible: tuple[int, ...] | None = None

    def visible(self) -> tuple[int, ...]:
        """Numbers of the GPUs that this process sees; fixed when CUDA is initialised."""
        return self._named() if self._visible is None else self._visible

    def initialise(self) -> None:
        if self._visible is None:
            self._visible = self._named()
            if not self._visible:
                raise RuntimeError("No CUDA GPUs are available")

    @property
    def initialised(self) -> bool:
        return self._visible is not None

    def _named(self) -> tuple[int, ...]:
        words = os.environ.get(VISIBLE)
        if words is None:
            return tuple(range(len(self.uuids)))
        numbers: list[int] = []
        for word in map(str.strip, words.split(",")):
            number = self.uuids.index(word) if word in self.uuids else int(word) if word.isdigit() else -1
            # Words after one that names no GPU are ignored.
            if not 0 <= number < len(self.uuids) or number in numbers:
                break
            numbers.append(number)
        return tuple(numbers)

    def device(self, name: object = None) -> torch.device:
        """The device of `name`, a device, its name or number; the current GPU where `name` has no number."""
        device = torch.device("cuda", name) if isinstance(name, int) else torch.device(name or "cuda")
        if device.type == "cpu":
            return CPU
        self.initialise()
        index = self.current if device.index is None or device.type == "meta" else device.index
        if index >= len(self.visible()):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return torch.device("cuda", index)

    def wait(self, reason: str) -> None:
        """Count a synchronisation. Raises RuntimeError where CUDA would refuse it."""
        self.refuse_in_capture(reason)
        if self.sync_mode in (2, "error"):
            raise RuntimeError(f"called a synchronizing CUDA operation ({reason})")
        self.counts["synchronisations"] += 1
        self.waits.append(reason)
        self.arrive()

    def arrive(self) -> None:
        """Copies that are under way end."""
        for target, values in self.pending:
            target.copy_(values)
        self.pending.clear()

    def hold(self, tensors: list[torch.Tensor]) -> None:
        """Raises OutOfMemoryError for tensors that are larger than the memory."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} of {self.memory} bytes.")

    def refuse_in_capture(self, reason: str) -> None:
        if self.capture is not None:
            raise CaptureRefused(f"CUDA error: operation not permitted when stream is capturing ({reason})")

    def copy(self, reason: str, blocking: bool = True) -> None:
        """Between the CPU and a GPU. PyTorch refuses it in a capture before it calls CUDA: the capture is not lost."""
        if self.capture is not None:
            raise RuntimeError(
                "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned."
            )
        if blocking:
            self.wait(reason)


machine = Machine(())


def replace_machine(gpus: int, memory: int) -> None:
    """Make the machine one with `gpus` GPUs, none of them in use."""
    fresh = Machine(tuple(f"GPU-00000000-0000-0000-0000-{number:012d}" for number in range(gpus)), memory)
    machine.__dict__.update(fresh.__dict__)
