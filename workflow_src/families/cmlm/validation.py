"""Figures on dev while a masked language model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from workflow_src.decoding.search import searching
from workflow_src.families.cmlm import CmlmObjectiveConfig
from workflow_src.families.cmlm.objective import masked_cross_entropy, masked_places
from workflow_src.losses.common import exact_lengths
from workflow_src.types import Batch, DevFigures, Measured

if TYPE_CHECKING:
    from workflow_src.families.cmlm.model import MaskedLanguageModel


# Passes of the translations whose BLEU selects the weights, as in the paper's smallest rows.
ITERATIONS = 4


def validate(_config: CmlmObjectiveConfig, _base: None = None) -> DevFigures:
    """Loss in nats a masked subword, with the same masks at every validation; exact lengths; and BLEU.

    `dev_bleu` is that of four passes at the most probable length, `dev_bleu_one_pass` that of the first.
    BLEU selects weights.
    """
    searches = {
        "dev_bleu": searching("mask-predict", iterations=ITERATIONS, length_beam=1),
        "dev_bleu_one_pass": searching("mask-predict", iterations=1, length_beam=1),
    }
    return DevFigures(_measure, searches, "dev_bleu")


def _measure(model: MaskedLanguageModel, batch: Batch, keys: Tensor) -> Measured:
    lengths = batch.target_lengths.to(keys.device, non_blocking=True)
    masked = masked_places(keys, lengths, batch.target.size(1))
    memory = model.encode(batch.source)
    _, nll = masked_cross_entropy(model, memory, batch.target, masked)
    exact = exact_lengths(model.length.predict(memory), batch)
    return Measured({"dev_loss": (nll, masked.sum()), "dev_length_accuracy": exact})
