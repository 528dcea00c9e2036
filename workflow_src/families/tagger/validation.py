"""Figures on dev while a tagger trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.search import searching
from workflow_src.families.tagger.objective import words_loss
from workflow_src.losses.common import exact_lengths
from workflow_src.losses.settings import OnePassConfig
from workflow_src.types import Batch, DevFigures, Measured

if TYPE_CHECKING:
    from workflow_src.families.tagger.model import Tagger


def validate(_config: OnePassConfig, _base: None = None) -> DevFigures:
    """Loss in nats a word at the reference's length, exact lengths, and BLEU at the predicted length."""
    return DevFigures(_measure, {"dev_bleu": searching("argmax")}, "dev_bleu")


def _measure(model: Tagger, batch: Batch, _keys: Tensor) -> Measured:
    memory = model.encode_batch(batch)
    _, nll = words_loss(model, memory, batch)
    exact = exact_lengths(model.length.predict(memory), batch)
    return Measured({"dev_loss": (nll, batch.target_lengths.sum()), "dev_length_accuracy": exact})
