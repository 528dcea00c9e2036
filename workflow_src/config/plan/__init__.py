"""Which files an experiment has and which settings make each of them.

Rules get their inputs, outputs and params from a `Plan`: paths (`paths.py`), dependencies (`graph.py`) and the
settings of every rule (`settings.py`).
"""

from workflow_src.config.plan.settings import Settings

__all__ = ["Plan"]


class Plan(Settings):
    """Paths, relations and settings of a checked configuration. Paths are relative to the working directory."""
