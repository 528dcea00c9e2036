"""Operations of networks are counted once for all tests of commands."""

from __future__ import annotations

import pytest

from workflow_src.cli import operations


@pytest.fixture(autouse=True)
def kept_counts(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(operations, "FILE", tmp_path_factory.getbasetemp() / "operations.json")
