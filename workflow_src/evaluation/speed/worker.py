"""What a measuring process of `measure_speed` runs: the translators of one engine on one device."""

from __future__ import annotations

from workflow_src.evaluation.speed.rows import About, Order
from workflow_src.evaluation.speed.timing import Local


def make(order: Order) -> tuple[Local, About]:
    """Load what an order names. Returns the timer and a description of the device."""
    from workflow_src.serving.folders import open_translator

    settings = {system: {} if system in order.in_roles else order.settings for system in order.folders}
    translators = {
        system: open_translator(folder, order.device, order.precision, order.threads, settings[system])
        for system, folder in order.folders.items()
    }
    first = next(one for system, one in translators.items() if system not in order.in_roles)
    device, precision = str(first.device), order.settings.get("compute_type") or str(first.precision)
    kind = device.split(":")[0]
    if kind != "cuda":
        return Local(translators), About(kind, None, precision)
    import torch

    def synchronise() -> None:
        torch.cuda.synchronize(device)

    return Local(translators, synchronise, largest=True), About(kind, torch.cuda.get_device_name(device), precision)
