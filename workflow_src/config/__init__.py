"""Strict configuration without torch: `load` reads and checks it, `Plan` has the files and settings of its jobs."""

from workflow_src.config.load import load, load_experiment
from workflow_src.config.plan import Plan
from workflow_src.errors import ConfigError

__all__ = ["ConfigError", "Plan", "load", "load_experiment"]
