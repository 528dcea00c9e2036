"""Commands work in a folder of their own; operations of networks are counted once for all tests."""

from __future__ import annotations

import pytest

from workflow_src.cli import operations


@pytest.fixture(autouse=True)
def kept_counts(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(operations, "FILE", tmp_path_factory.getbasetemp() / "operations.json")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
