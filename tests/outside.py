"""Packages outside of the tree, which tests write into a folder and use as plug-ins."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow_src import registry


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Makes a folder the working directory. Plug-ins that are used from it are forgotten in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        for name in (registry.VARIABLE, registry.PLACES):
            patch.delenv(name, raising=False)
        yield
        registry.use([])
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]
