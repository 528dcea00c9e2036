"""Tensors that say cuda:N, hold their values on the CPU, and follow CUDA's rules about devices and synchronisation.

To C++, such a tensor is on "meta": that device has a guard, and autograd runs it in the thread of the caller. Python
reads cuda:N. Every operator arrives at `dispatch`.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretended_cuda.machine import CPU, machine

aten = torch.ops.aten

SYNCHRONISING = {
    *(aten.nonzero.default, aten.masked_select.default, aten._unique2.default),
    *(aten.unique_dim.default, aten.unique_consecutive.default),
}
# Operators without the tag "pointwise" that take 0-d operands from the CPU.
TAKES_CPU_SCALARS = ("aten::fill_", "aten::masked_fill", "aten::_foreach", "aten::_fused_adam")
INDEXING = ("aten::index.Tensor", "aten::_unsafe_index.Tensor", "aten::index_put", "aten::_index_put_impl_")
# Operators that read no value of their tensors.
SHAPES_ALONE = ("aten::empty_like", "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::new_")
# Operators that only make memory, or another view of it.
NO_KERNEL = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift_fresh")
NO_NUMPY = "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."


class DeviceTensor(torch.Tensor):
    """A tensor on a pretended GPU; `values` is the CPU's tensor."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor, device: torch.device) -> DeviceTensor:
        assert device.type == "cuda", device
        tensor = torch.Tensor._make_wrapper_subclass(
            *(cls, values.size()),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device="meta",
        )
        tensor.values, tensor._place = values, device
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: self._place)
    is_cuda = property(lambda _: True)
    is_cpu = is_meta = property(lambda _: False)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return dispatch(function, args, kwargs or {})

    def get_device(self):
        return self._place.index

    def data_ptr(self):
        return self.values.data_ptr()

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *_, **__):
        raise TypeError(NO_NUMPY.format(self._place))

    def __array__(self, *_, **__):
        raise TypeError(NO_NUMPY.format(self._place))

    def __repr__(self, **_):
        return f"{self.values!r} on {self._place}"

    def __getitem__(self, index):
        return torch.Tensor.__getitem__(self, _without_lists(index))

    def __setitem__(self, index, value):
        # As for CUDA, a number becomes a tensor of the CPU.
        value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=self.dtype)
        torch.Tensor.__setitem__(self, _without_lists(index), value)


def _without_lists(index):
    """An index whose lists are tensors of the CPU, as which CUDA copies them too."""
    if isinstance(index, tuple):
        return tuple(torch.tensor(element) if isinstance(element, list) else element for element in index)
    return torch.tensor(index) if isinstance(index, list) else index


def unwrapped(x):
    """Arguments with the CPU's tensors in place of ours."""
    if isinstance(x, DeviceTensor):
        return x.values
    if isinstance(x, (list, tuple)):
        return type(x)([unwrapped(element) for element in x])
    return x


def tensors_in(x) -> list[Tensor]:
    """The tensors of nested lists and tuples."""
    if isinstance(x, Tensor):
        return [x]
    return [tensor for element in x for tensor in tensors_in(element)] if isinstance(x, (list, tuple)) else []


def dispatch(function, args, kwargs):
    """Run an operator as a GPU would, or refuse it."""
    operands = tensors_in(args) + tensors_in(list(kwargs.values()))
    on_gpu = [tensor for tensor in operands if isinstance(tensor, DeviceTensor)]
    requested = kwargs.get("device")
    elsewhere = requested is not None and torch.device(requested).type in ("cuda", "meta")
    if not on_gpu and not elsewhere:
        return function(*args, **kwargs)
    if requested is not None and torch.device(requested) == CPU and function.name().startswith(SHAPES_ALONE):
        return function(*unwrapped(args), **kwargs)
    if function is aten._to_copy.default:
        return _copied(args[0], kwargs)
    if function is aten.copy_.default:
        return _copied_into(*args, *kwargs.values())
    if torch.Tag.inplace_view in function.tags:
        raise NotImplementedError(f"{function.name()} is not pretended: it changes shapes in place")
    device = on_gpu[0].device if on_gpu and (requested is None or torch.device(requested).type == "meta") else None
    device = machine.device(requested) if device is None else device
    _check_devices(function, args, operands, device)
    _count_wait(function, args, kwargs)
    cpu_kwargs = {name: CPU if name == "device" else unwrapped(value) for name, value in kwargs.items()}
    cpu_kwargs |= {"pin_memory": False} if "pin_memory" in cpu_kwargs else {}
    result = _run(function, unwrapped(args), cpu_kwargs, device)
    by_values = {id(tensor.values): tensor for tensor in on_gpu}
    # Lengths of packed sequences are the CPU's.
    on_cpu = [result[1]] if function is aten._pack_padded_sequence.default else []
    return _wrapped(result, device, by_values, on_cpu)


def _run(function, args, kwargs, device: torch.device):
    """The result on the CPU, counted, and recorded where a graph is captured."""
    kernel = launches(function)
    if machine.capture is not None:
        return machine.capture(function, args, kwargs, kernel)
    machine.counts["operators" if kernel else "views"] += 1
    if torch.Tag.nondeterministic_seeded in function.tags and kwargs.get("generator") is None:
        result = with_own_numbers(device, lambda: function(*args, **kwargs))
    else:
        result = function(*args, **kwargs)
    machine.hold(tensors_in(result))
    return result


@functools.cache
def launches(function) -> bool:
    """Whether an operator computes anything: no view, no allocation."""
    return not function.is_view and not function.name().startswith(NO_KERNEL)


@functools.cache
def returns_a_value(function) -> bool:
    """Whether an operator returns a number or a truth value of Python."""
    return any(str(result.type) in ("bool", "Scalar", "number") for result in function._schema.returns)


def with_own_numbers(device: torch.device, compute):
    """`compute()` with random numbers of the device's own generator."""
    generator, cpu_state = machine.generators[device.index], torch.default_generator.get_state()
    torch.default_generator.set_state(generator.values_state())
    try:
        return compute()
    finally:
        generator.set_values_state(torch.default_generator.get_state())
        torch.default_generator.set_state(cpu_state)


def _wrapped(result, device: torch.device, by_values: dict[int, DeviceTensor], on_cpu: list[Tensor]):
    """Results as tensors of the device; operators in place return their operands."""
    if isinstance(result, (list, tuple)):
        return type(result)([_wrapped(element, device, by_values, on_cpu) for element in result])
    if not isinstance(result, Tensor) or any(result is tensor for tensor in on_cpu):
        return result
    return by_values[id(result)] if id(result) in by_values else DeviceTensor(result, device)


def _copied(source: Tensor, kwargs):
    """`_to_copy`: to another type, or to another device."""
    kwargs = dict(kwargs)
    requested, blocking = kwargs.pop("device", None), not kwargs.pop("non_blocking", False)
    kwargs.pop("pin_memory", None)
    origin = source.device
    target = origin if requested is None or torch.device(requested).type == "meta" else machine.device(requested)
    if origin == target and origin.type == "cuda":
        return DeviceTensor(_run(aten._to_copy.default, (source.values,), kwargs, target), target)
    if requested is not None and torch.device(requested).type == "meta" and origin == CPU:
        target = machine.device()
    _count_copy(origin, target, blocking)
    values = aten._to_copy.default(unwrapped(source), **kwargs)
    if target == CPU and origin != CPU and not blocking:
        return _arriving(values)
    return values if target == CPU else DeviceTensor(values, target)


def _arriving(values: Tensor) -> Tensor:
    """A copy to the host that is not complete: until the CPU waits, it holds other values."""
    target = torch.full_like(values, float("nan") if values.is_floating_point() else 1)
    machine.pending.append((target, values))
    return target


def _copied_into(target: Tensor, source: Tensor, non_blocking: bool = False):
    if target.device == source.device:
        _run(aten.copy_.default, (target.values, source.values), {}, target.device)
    else:
        _count_copy(source.device, target.device, not non_blocking)
        aten.copy_.default(unwrapped(target), unwrapped(source))
    return target


def _count_copy(source: torch.device, target: torch.device, blocking: bool) -> None:
    copy = f"copy from {source} to {target}"
    if CPU not in (source, target):
        machine.refuse_in_capture(copy)
        machine.counts["operators"] += 1
        return
    machine.copy(copy, blocking)
    machine.counts["copies to the host" if target == CPU else "copies to the device"] += 1


def _check_devices(function, args, operands: list[Tensor], device: torch.device) -> None:
    """Raises RuntimeError for operands of several devices, but for CUDA's exceptions."""
    if function is aten._pack_padded_sequence.default and args[1].device != CPU:
        actual = f"{args[1].dim()}D {args[1].device} tensor"
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {actual}")
    elsewhere = [tensor for tensor in operands if tensor.device != device]
    if not elsewhere:
        return
    name = function.name()
    if all(tensor.device == CPU for tensor in elsewhere):
        if all(tensor.dim() == 0 for tensor in elsewhere) and (
            torch.Tag.pointwise in function.tags or name.startswith(TAKES_CPU_SCALARS)
        ):
            return
        values = [args[2]] if name.startswith(INDEXING[2:]) else []
        if name.startswith(INDEXING) and args[0].device == device:
            if all(tensor.device == device or tensor.dim() == 0 for tensor in values):
                return
        if name.startswith(("aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::lstm")):
            return
    if name.startswith(INDEXING) and args[0].device == CPU:
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    devices = " and ".join(dict.fromkeys(str(tensor.device) for tensor in operands))
    raise RuntimeError(f"Expected all tensors to be on the same device, but found {devices} in {name}")


def _count_wait(function, args, kwargs) -> None:
    name = function.name()
    if function in SYNCHRONISING or returns_a_value(function):
        machine.wait(name)
    elif function is aten.bincount.default:
        # For the least and the largest value.
        machine.copy(name)
        machine.wait(name)
    elif function is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        machine.wait(name)
        machine.wait(name)
    elif name.startswith(INDEXING):
        indices = [index for index in args[1] if index is not None]
        masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
        stored = args[2] if name.startswith(INDEXING[2:]) else None
        if stored is not None and stored.device == CPU:
            # One number at the places of a mask is filled in; anywhere else it is copied first.
            if len(indices) == 1 and masks and masks[0].device != CPU and not (len(args) > 3 and args[3]):
                return
            machine.copy(f"{name}: a value of the CPU")
        for index in indices:
            if index.device == CPU:
                machine.copy(f"{name}: an index of the CPU")
            elif index.dtype in (torch.bool, torch.uint8):
                machine.wait(f"{name}: a mask")


class Dispatching(TorchDispatchMode):
    """Operators without operands of ours, which make tensors on a device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return dispatch(function, args, kwargs or {})
