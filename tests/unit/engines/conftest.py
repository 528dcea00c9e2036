"""Graphs that several tests need are exported once for a run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from miniatures import transformer

SIZE = 9


@pytest.fixture(scope="session")
def shared_graphs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def graphs(shared_graphs, monkeypatch) -> Path:
    """The folder where engines keep the graphs that they export."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_graphs))
    return shared_graphs


@pytest.fixture(scope="session")
def rescorer():
    """A system that ranks candidates of 9 source and target subwords; what takes time is to export its graphs."""
    return transformer(SIZE, SIZE, seed=2, encoder_layers=1, decoder_layers=1).float()
