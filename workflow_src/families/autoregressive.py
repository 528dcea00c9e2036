"""Base of autoregressive families: methods that need only source states and a pass over a known output."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.layers import Embedding
from workflow_src.nn.recurrent import WordEmbedding
from workflow_src.searches.greedy.search import greedy
from workflow_src.types import PAD, Batch, DevFigures, EncoderOutput, IncrementalDecoder, Measured, wide, with_end


class Autoregressive(nn.Module):
    """p(y|x) = product over t of p(y_t | y_<t, x).

    A subclass has `encode`, `hidden` and `start`; its embedding of targets is its output projection.
    """

    config: Any
    target_embedding: Embedding | WordEmbedding
    output_bias: nn.Parameter

    def encode(self, source: Tensor) -> EncoderOutput:
        """Source (B, S) -> states for the decoder; their `select(rows)` gives those of some sentences."""
        raise NotImplementedError

    def hidden(self, memory: EncoderOutput, target: Tensor) -> Tensor:
        """Last decoder states (B, T+1, D) when the decoder reads BOS and then target.

        Target: ids (B, T) int64, or distributions over the vocabulary (B, T, V), each of which is read as the mean of
        the embeddings under it. Tokens at padding change no position before them.
        """
        raise NotImplementedError

    def start(self, memory: EncoderOutput) -> IncrementalDecoder:
        """The decoder one position at a time, as searches use it."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., D) -> (..., V)."""
        return F.linear(hidden, self.target_embedding.weight, self.output_bias)

    def log_probabilities(self, source: Tensor, target: Tensor, memory: EncoderOutput = None) -> Tensor:
        """log p(y_t | y_<t, x) of target (B, T) and of its end symbol, (B, T+1); 0 at padding.

        `memory` is the encoder's output for the source, where it is computed already.
        """
        return self._log_probabilities(self.encode(source) if memory is None else memory, target)

    def _log_probabilities(self, memory: EncoderOutput, target: Tensor) -> Tensor:
        labels = with_end(target)
        scores = wide(self.logits(self.hidden(memory, target))).log_softmax(-1)
        return scores.gather(-1, labels[..., None])[..., 0] * (labels != PAD)

    def scoring_states(self, source: Tensor) -> EncoderOutput:
        """The states that outputs of source (B, S) are scored from: the encoder's."""
        return self.encode(source)

    def log_probability(self, states: EncoderOutput, target: Tensor) -> Tensor:
        """log p(y|x) of target (B, T) and its end, (B,)."""
        return self._log_probabilities(states, target).sum(1)

    def relaxed_logits(self, states: EncoderOutput, target: Tensor) -> Tensor:
        """Logits of p(. | y_<t, x), (B, T+1, V), where y are distributions over words, target (B, T, V).

        `states` are those of `scoring_states`. Position t comes from the first t distributions; the last position comes
        after all of them, where a full row ends. One-hot distributions give the same as their words (Tu et al. 2020,
        section 3.1). The result has gradients with respect to `target`, also where all parameters are frozen.
        """
        return self.logits(self.hidden(states, target))


def validate(_config: CrossEntropyConfig, _base: None = None) -> DevFigures:
    """Loss of a token, end symbols counted, and BLEU of greedy search on dev, which selects the weights."""

    def measure(model: Autoregressive, batch: Batch, _keys: Tensor) -> Measured:
        total = model.log_probabilities(batch.source, batch.target).sum()
        return Measured({"dev_loss": (-total, batch.num_target_tokens)})

    return DevFigures(measure, {"dev_bleu": greedy}, "dev_bleu")
