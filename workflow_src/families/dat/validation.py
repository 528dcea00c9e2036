"""Figures on dev while a directed acyclic Transformer trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.search import searching
from workflow_src.families.dat import DatObjectiveConfig
from workflow_src.families.dat.objective import paths_of, sentence_losses
from workflow_src.types import Batch, DevFigures, Measured

if TYPE_CHECKING:
    from workflow_src.families.dat.model import DirectedAcyclicTransformer


def validate(_config: DatObjectiveConfig, _base: None = None) -> DevFigures:
    """Loss in nats a symbol, the share of targets without a path, and BLEU of paths that look ahead."""
    return DevFigures(_measure, {"dev_bleu": searching("graph-path")}, "dev_bleu")


def _measure(model: DirectedAcyclicTransformer, batch: Batch, _keys: Tensor) -> Measured:
    hidden, mask = model.hidden(model.encode(batch.source))
    paths = paths_of(model, batch)
    _, losses = sentence_losses(model, hidden, mask, paths)
    reachable = paths.reachable.sum()
    return Measured(
        {
            "dev_loss": (losses.sum(), reachable),
            "dev_unreachable": (len(mask) - reachable, len(mask)),
        }
    )
