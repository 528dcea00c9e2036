"""Translating much text with one network by CTranslate2, for distillation: no folder of it is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from torch import nn

from workflow_src.data.subwords import Subwords
from workflow_src.engines.ctranslate2 import Engine
from workflow_src.engines.ctranslate2_spec import write_model
from workflow_src.runtime.device import Runtime
from workflow_src.types import Hypotheses, max_positions


def distil(
    network: nn.Module, subwords: Subwords, runtime: Runtime, threads: int
) -> Callable[[list[list[int]], Any, int], tuple[Hypotheses, list[int]]]:
    """(source ids, beam settings, batch) -> hypotheses in float32, and indices of sentences with cut hypotheses.

    Where the length limit cuts a hypothesis, the library stops and our own search goes on: the two may differ there.
    """
    # The library holds the model in memory once it is loaded; the folder is only how it gets there.
    with tempfile.TemporaryDirectory() as folder:
        write_model(network, subwords.names(), folder)
        # Several batches at once, one thread each: threads within a batch gain little for models of this size.
        engine = Engine(
            folder,
            subwords.names(),
            max_positions(network),
            device=str(runtime.device),
            inter_threads=threads,
        )

    def search(sources: list[list[int]], settings: Any, batch: int) -> tuple[Hypotheses, list[int]]:
        return engine.decode(sources, settings, batch), list(engine.cut)

    return search
