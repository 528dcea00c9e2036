"""Translating much text with one network by CTranslate2, for distillation: no folder of it is kept."""

from __future__ import annotations

import tempfile

from workflow_src.engines.ctranslate2 import CTranslate2Session
from workflow_src.engines.ctranslate2_spec import write_model
from workflow_src.engines.session import System
from workflow_src.types import max_positions


def open_distilling(system: System) -> CTranslate2Session:
    """A session in float32 of the one network of a system.

    Where the length limit cuts a hypothesis (`Hypotheses.cut`), the library stops and our own search goes on: the two
    may differ there.
    """
    (network,) = system.networks.values()
    assert system.subwords is not None, "systems of bundles have subwords"
    names = system.subwords.names()
    # The library holds the model in memory once it is loaded; the folder is only how it gets there.
    with tempfile.TemporaryDirectory() as folder:
        write_model(network, names, folder)
        return CTranslate2Session(folder, names, max_positions(network), device=system.device, threads=system.threads)
