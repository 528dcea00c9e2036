"""The content of a worker process of `measure_speed`: the translators of one engine on one device."""

from __future__ import annotations

from workflow_src.evaluation.speed.rows import DeviceInfo, Order
from workflow_src.evaluation.speed.timing import Local


def make(order: Order) -> tuple[Local, DeviceInfo]:
    """Load the translators of an order; returns the timer and a description of the device."""
    from workflow_src.serving.folders import open_translator

    how = order.device, order.precision, order.threads
    decoding = order.engine, order.compute_type
    translators = {
        system: open_translator(folder, *how, *(() if system in order.in_roles else decoding))
        for system, folder in order.folders.items()
    }
    translator = next(translator for system, translator in translators.items() if system not in order.in_roles)
    device, precision = str(translator.device), order.compute_type or str(translator.precision)
    kind = device.split(":")[0]
    if kind != "cuda":
        return Local(translators), DeviceInfo(kind, None, precision)
    import torch

    def synchronise() -> None:
        torch.cuda.synchronize(device)

    device_info = DeviceInfo(kind, torch.cuda.get_device_name(device), precision)
    return Local(translators, synchronise, grow_batch=True), device_info
