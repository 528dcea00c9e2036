"""An experiment that extends a file of the user's, and one that uses a plug-in of the user's."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml

from workflow_src import registry
from workflow_src.config import load


@pytest.fixture
def load_over(tmp_path):
    """Loads settings laid over those of a parent: `load_over(parent, only=["ctc"])`."""

    def loaded(parent: dict[str, Any], **own: Any):
        file = tmp_path / "parent.yaml"
        file.write_text(yaml.safe_dump(parent, sort_keys=False), encoding="utf-8")
        return load({"extends": str(file), **own})

    return loaded


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Writes a module that a configuration may name under `plugins`: `own_module(name, text)`.

    It lies in the working folder, and is forgotten after the test.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    names = []

    def write(name: str, text: str) -> None:
        names.append(name)
        (tmp_path / f"{name}.py").write_text(text)

    yield write
    registry.use([])
    for name in names:
        sys.modules.pop(name, None)
