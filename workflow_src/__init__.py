"""Continuum. `from workflow_src import Translator` translates with an exported bundle."""

from typing import Any

from workflow_src.runtime import environment

__all__ = ["Translator"]

# Libraries read the environment when they are imported.
environment.prepare()


def __getattr__(name: str) -> Any:
    """`Translator` is imported when it is first asked for: planning a workflow needs no PyTorch."""
    if name == "Translator":
        from workflow_src.serving.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
