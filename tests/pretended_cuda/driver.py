"""Replacements in `torch.cuda`: devices, random numbers, streams and memory."""

from __future__ import annotations

import types

import torch

from pretended_cuda.graphs import CUDAGraph, graph
from pretended_cuda.machine import machine

# A generator of a GPU gives other numbers than one of the CPU with the same seed, and its state has another size.
OTHER_NUMBERS = 0x5DEECE66D
_CpuGenerator = torch.Generator


class Generator(torch.Generator):
    """`torch.Generator` on any device."""

    def __new__(cls, device="cpu"):
        if torch.device(device).type == "cpu":
            return _CpuGenerator(device)
        generator = super().__new__(cls)
        generator._place = machine.device(device)
        return generator

    def __init__(self, device="cpu"):
        pass

    device = property(lambda self: self._place)

    def manual_seed(self, seed):
        super().manual_seed((seed ^ OTHER_NUMBERS) & (2**63 - 1))
        return self

    def values_state(self):
        return super().get_state()

    def set_values_state(self, state):
        super().set_state(state)

    def get_state(self):
        return torch.cat([self.values_state(), torch.zeros(1, dtype=torch.uint8)])

    def set_state(self, state):
        if state.numel() != self.values_state().numel() + 1:
            raise RuntimeError("RNG state is wrong size")
        self.set_values_state(state[:-1].clone())
        return self


class Stream:
    """Work is done when it is queued, in the order of the program: streams wait for each other without an effect."""

    def __init__(self, device=None, **_):
        self.device = machine.device(device)

    def wait_stream(self, stream):
        pass

    def query(self):
        return True

    def synchronize(self):
        machine.wait("a stream")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def _device_name(device=None):
    return f"Pretended GPU {machine.visible()[machine.device(device).index]}"


def _properties(device=None):
    name = _device_name(device)
    return types.SimpleNamespace(name=name, total_memory=machine.memory, multi_processor_count=132, major=9, minor=0)


def _set_device(device):
    machine.current = machine.device(device).index


def _synchronize(*_):
    machine.refuse_in_capture("torch.cuda.synchronize")
    machine.counts["synchronisations"] += 1
    machine.waits.append("torch.cuda.synchronize")
    machine.arrive()


def _seed_all(seed):
    for index in range(len(machine.uuids)):
        machine.generators[index].manual_seed(seed)


def _rng_state(device="cuda"):
    return machine.generators[machine.device(device).index].get_state()


def _set_rng_state(state, device="cuda"):
    machine.generators[machine.device(device).index].set_state(state)


def _set_sync_debug_mode(mode):
    if mode not in (0, 1, 2, "default", "warn", "error"):
        raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    machine.sync_mode = mode


def own_generators() -> dict[int, torch.Generator]:
    """The default generator of each GPU."""
    generators = {}
    for index in range(len(machine.uuids)):
        generators[index] = _CpuGenerator.__new__(Generator)
        generators[index]._place = torch.device("cuda", index)
        generators[index].manual_seed(0)
    return generators


REPLACED = {
    "is_available": lambda: bool(machine.visible()),
    "is_initialized": lambda: machine.initialised,
    "device_count": lambda: len(machine.visible()),
    "current_device": lambda: machine.device().index,
    "set_device": _set_device,
    "_lazy_init": machine.initialise,
    "synchronize": _synchronize,
    "is_bf16_supported": lambda *_, **__: True,
    "get_device_capability": lambda *_: (9, 0),
    "get_device_name": _device_name,
    "get_device_properties": _properties,
    "mem_get_info": lambda *_: (machine.memory, machine.memory),
    "memory_allocated": lambda *_: 0,
    "memory_reserved": lambda *_: 0,
    "max_memory_allocated": lambda *_: 0,
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda: None,
    "manual_seed_all": _seed_all,
    "get_rng_state": _rng_state,
    "set_rng_state": _set_rng_state,
    "set_sync_debug_mode": _set_sync_debug_mode,
    "get_sync_debug_mode": lambda: machine.sync_mode,
    "Stream": Stream,
    "current_stream": lambda device=None: Stream(device),
    "stream": lambda stream: stream,
    "CUDAGraph": CUDAGraph,
    "graph": graph,
    "graph_pool_handle": lambda: (0, 0),
    "is_current_stream_capturing": lambda: machine.capture is not None,
}
# A build of PyTorch for GPUs would hand the weights of recurrent networks to cuDNN.
NO_CUDNN = {"is_acceptable": lambda _: False}
