"""Which files an experiment has and which settings make each of them.

Rules get their inputs, outputs and params from a `Plan`: paths (`paths.py`), dependencies (`graph.py`), rows to
compare others with (`comparisons.py`), inputs (`inputs.py`) and the settings of every rule (`settings.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflow_src.config.load import load
from workflow_src.config.plan.settings import Plan

__all__ = ["Plan", "shown_plan"]


def shown_plan(settings: Mapping[str, Any]) -> Plan:
    """The plan that the settings of a report (`settings_report`) were written from, as far as the report shows it."""
    configuration = {name: value for name, value in settings.items() if name != "order"}
    configuration["systems"] = {name: settings["systems"][name] for name in settings["order"]}
    return Plan(load(configuration))
