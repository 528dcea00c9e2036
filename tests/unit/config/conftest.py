"""An experiment that extends a file of the user's, and one that uses a plug-in of the user's."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from outside import working_in

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
def own_module(tmp_path):
    """Writes a module that a configuration may name under `plugins`: `own_module(name, text)`."""
    with working_in(tmp_path):
        yield lambda name, text: (tmp_path / f"{name}.py").write_text(text)
