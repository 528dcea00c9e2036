"""CUDA graphs: a capture records operators with their buffers and computes nothing; a replay computes into these."""

from __future__ import annotations

import torch
from torch import Tensor

from pretended_cuda.machine import CaptureRefused, machine
from pretended_cuda.tensors import tensors_in


class CUDAGraph:
    """A recorded sequence of operators."""

    def __init__(self, *_, **__):
        self.operators: list[tuple] = []

    def replay(self) -> None:
        """Run every operator once more, on the present content of its buffers."""
        if machine.capture is not None:
            raise RuntimeError("Cannot prepare for replay during capturing stage.")
        machine.counts["graph launches"] += 1
        with torch.no_grad():
            for function, args, kwargs, result in self.operators:
                new_result = function(*args, **kwargs)
                for buffer, values in zip(tensors_in(result), tensors_in(new_result), strict=True):
                    # In place, it is written already.
                    if buffer.data_ptr() != values.data_ptr():
                        buffer.copy_(values)

    def reset(self) -> None:
        self.operators = []


class graph:
    """`torch.cuda.graph`: operators within the context are recorded, not computed."""

    def __init__(self, cuda_graph: CUDAGraph, **_):
        self.graph = cuda_graph
        # Tensors that are written in place, with their content before the capture, by address.
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.fresh: list[Tensor] = []

    def __enter__(self) -> None:
        machine.refuse_in_capture("a second capture")
        machine.capture = self.record

    def record(self, function, args, kwargs, kernel: bool):
        """The result of an operator, for its shape; written values are restored at the end of the capture."""
        targets = _write_targets(function, args, kwargs)
        for tensor in targets:
            self.before.setdefault(tensor.data_ptr(), (tensor, tensor.clone()))
        result = function(*args, **kwargs)
        if kernel:
            self.graph.operators.append((function, args, kwargs, result))
            self.fresh += [tensor for tensor in tensors_in(result) if not any(tensor is x for x in targets)]
        return result

    def __exit__(self, _, error: BaseException | None, __) -> None:
        machine.capture = None
        for tensor in self.fresh:
            tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
        for tensor, content in self.before.values():
            tensor.copy_(content)
        if isinstance(error, CaptureRefused):
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def _write_targets(function, args, kwargs) -> list[Tensor]:
    """Arguments that an operator writes."""
    by_name = {argument.name: value for argument, value in zip(function._schema.arguments, args, strict=False)} | kwargs
    writes = [a.name for a in function._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [tensor for name in writes if name in by_name for tensor in tensors_in(by_name[name])]
