"""NCCL's rules in place of NCCL, over gloo: processes have different GPUs and send only tensors on these."""

from __future__ import annotations

import os

import torch.distributed as dist

from pretended_cuda.machine import machine
from pretended_cuda.tensors import DeviceTensor, unwrapped

_new_group, _all_reduce = dist.new_group, dist.all_reduce


def new_group(*args, backend=None, **options):
    if backend != "nccl":
        return _new_group(*args, backend=backend, **options)
    group = _new_group(*args, backend="gloo", **options)
    host_and_gpu = os.uname().nodename, machine.uuids[machine.visible()[machine.device().index]]
    gpus = [None] * dist.get_world_size(group)
    dist.all_gather_object(gpus, host_and_gpu, group)
    if len(set(gpus)) < len(gpus):
        raise RuntimeError(f"NCCL error: Duplicate GPU detected: {', '.join(gpu for _, gpu in gpus)}")
    machine.nccl.append(group)
    return group


def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, **options):
    of_gpus = any(group is nccl_group for nccl_group in machine.nccl)
    if of_gpus != isinstance(tensor, DeviceTensor):
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")
    return _all_reduce(unwrapped(tensor), op, group, **options)


REPLACED = {"new_group": new_group, "all_reduce": all_reduce}
