"""Device and precision: chosen by the hardware, or as configured."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from workflow_src.errors import ConfigError
from workflow_src.runtime import forks

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A device, the type that matrix products are computed in while training, and whether to compile."""

    device: torch.device
    dtype: torch.dtype
    compile: bool = False

    def autocast(self):
        """Context for training: float32 weights, products in `dtype`."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def synchronise(self) -> None:
        """Wait for the device, before a clock is read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def soon_on_cpu(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Copies of tensors on the CPU, which are complete when it has waited for anything that their device computes
    later; tensors of the CPU as they are."""
    return [tensor.to("cpu", non_blocking=True) if tensor.is_cuda else tensor for tensor in tensors]


def on_cpu(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Copies of tensors on the CPU, which waits for their device once; tensors of the CPU as they are."""
    copies = soon_on_cpu(*tensors)
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return copies


def on_device(values: Sequence[Any], device: torch.device) -> torch.Tensor:
    """A tensor of numbers on a device, for which the CPU does not wait."""
    return torch.tensor(values).to(device, non_blocking=True)


def check_device(name: Any, gpus: int) -> None:
    """Raises InputError for anything but cpu, cuda and cuda:N, and for a GPU beyond the number of `gpus`."""
    if not isinstance(name, str) or not (match := re.fullmatch(r"cpu|cuda(?::(0|[1-9][0-9]*))?", name)):
        raise ConfigError("device", name, allowed=("auto", "cpu", "cuda", "cuda:N"))
    if name != "cpu" and int(match[1] or 0) >= gpus:
        raise ConfigError("device", name, problem=f"{gpus} CUDA devices are visible", allowed=("auto", "cpu"))


def choose(device: str = "auto", precision: str = "auto", compile: bool = False, training: bool = True) -> Runtime:
    """The runtime for these settings.

    auto precision: bfloat16 on GPUs that have it, bfloat16 in training on CPUs with instructions for it (measured
    1.2 to 2 times as fast as float32 there), float32 elsewhere; inference on CPUs is float32, because single sentences
    gain nothing.

    Raises InputError for a device that is not there or a precision that is unknown.
    """
    if precision not in PRECISIONS:
        raise ConfigError("precision", precision, allowed=PRECISIONS)
    name = device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(name, torch.cuda.device_count())
    chosen = torch.device(name)
    if precision == "auto":
        on_gpu = chosen.type == "cuda"
        wide = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else training and _cpu_has_bfloat16()
        precision = "bfloat16" if wide else "float32"
    if chosen.type == "cuda":
        # float32 is computed as such; beside bfloat16, TF32 products lose nothing.
        torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
        # cuDNN's attention makes a plan for every new shape, and shapes change with every batch and decoding step.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return Runtime(chosen, getattr(torch, precision), compile)


def _cpu_has_bfloat16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability()
    if not capabilities.startswith("AVX512") and capabilities != "AMX":
        return False
    flags = cpu_flags()
    return "amx_bf16" in flags or "avx512_bf16" in flags


def cpu_flags() -> str:
    """What Linux says of the CPU's instructions; empty where it says nothing."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def set_threads(threads: int | None) -> None:
    """CPU threads of this process; one where it was forked from a process that may have used more."""
    if threads:
        torch.set_num_threads(threads if forks.threads_before() is None else 1)


def keep_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system after every step.

    Activations of a step are freed and taken again all the time; page faults otherwise cost a quarter of a training
    step on CPUs. Does nothing where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, 2**31 - 1)
    libc.mallopt(top_pad, 64 * 2**20)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
