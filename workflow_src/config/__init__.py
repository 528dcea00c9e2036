"""Strict configuration without torch: `load` reads and checks it, `Plan` says which files and jobs follow from it."""

from workflow_src.config.load import load, load_experiment
from workflow_src.config.plan import Plan
from workflow_src.errors import ConfigError

__all__ = ["ConfigError", "Plan", "load", "load_experiment"]
