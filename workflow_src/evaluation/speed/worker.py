"""What a measuring process of `measure_speed` runs: the translators of one engine on one device."""

from __future__ import annotations

from typing import Any

from workflow_src.evaluation.speed.timing import Local


def make(order: dict[str, Any]) -> tuple[Local, dict[str, Any]]:
    """Load what an order names: folders by system, device, precision, threads. Returns what times rows, and a report.

    Systems of `in_roles` decode nothing themselves: our own engine opens them. The report has device, device_name
    (GPUs) and precision.
    """
    from workflow_src.serving.folders import open_engine

    settings = {system: {} if system in order["in_roles"] else order["settings"] for system in order["folders"]}
    translators = {
        system: open_engine(folder, order["device"], order["precision"], order["threads"], settings[system])
        for system, folder in order["folders"].items()
    }
    first = next(one for system, one in translators.items() if system not in order["in_roles"])
    device = str(first.device)
    kind = device.split(":")[0]
    about = {
        "device": kind,
        "device_name": None,
        "precision": order["settings"].get("compute_type") or str(first.precision),
    }
    if kind != "cuda":
        return Local(translators), about
    import torch

    about["device_name"] = torch.cuda.get_device_name(device)

    def synchronise() -> None:
        torch.cuda.synchronize(device)

    return Local(translators, synchronise, largest=True), about
