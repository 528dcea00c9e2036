"""Figures on dev while an autoregressive model trains."""

from __future__ import annotations

from torch import Tensor

from workflow_src.decoding.search import searching
from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.types import Batch, DevFigures, Measured


def validate(_config: CrossEntropyConfig, _base: None = None) -> DevFigures:
    """Loss of a token, end symbols counted, and BLEU of greedy search on dev, which selects the weights."""

    def measure(model: AutoregressiveModel, batch: Batch, _keys: Tensor) -> Measured:
        total = model.log_probabilities(batch.source, batch.target).sum()
        return Measured({"dev_loss": (-total, batch.num_target_tokens)})

    return DevFigures(measure, {"dev_bleu": searching("greedy")}, "dev_bleu")
