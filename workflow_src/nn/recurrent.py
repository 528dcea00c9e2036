"""LSTM layers, torch's own, over padded sequences. Shapes: the legend in `types.py`; E is the width of embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from workflow_src.nn.layers import check_length, dropout, embedded


class LSTM(nn.LSTM):
    """torch's LSTM, which has gradients in evaluation mode on GPUs too, as a frozen energy needs them."""

    def forward(self, inputs, state=None):
        if self.training or not (torch.is_grad_enabled() and self.weight_hh_l0.is_cuda):
            return super().forward(inputs, state)
        # cuDNN's backward pass needs the training mode, which differs from evaluation in dropout alone.
        probability, self.dropout, self.training = self.dropout, 0.0, True
        try:
            return super().forward(inputs, state)
        finally:
            self.dropout, self.training = probability, False


def lstm(inputs: int, dim: int, layers: int, probability: float, bidirectional: bool = False) -> LSTM:
    """LSTM layers over (B, T, inputs) with dropout between them."""
    between = probability if layers > 1 else 0.0
    return LSTM(inputs, dim, layers, batch_first=True, dropout=between, bidirectional=bidirectional)


class WordEmbedding(nn.Module):
    """Embeddings times sqrt(E), of ids (B, T) int64 or distributions (B, T, V): (B, T, E), without position codes."""

    def __init__(self, size: int, dim: int, probability: float, max_positions: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dim).normal_(std=dim**-0.5))
        self.scale = math.sqrt(dim)
        self.dropout = probability
        self.max_positions = max_positions

    def forward(self, words: Tensor) -> Tensor:
        """Raises ConfigError for sequences of more than `max_positions`."""
        check_length(words.size(1), self.max_positions)
        return dropout(embedded(words, self.weight) * self.scale, self.dropout, self.training)


class BidirectionalLSTM(nn.Module):
    """Layers of an LSTM in both directions over sentences of a batch."""

    def __init__(self, inputs: int, dim: int, layers: int, probability: float):
        super().__init__()
        self.lstm = lstm(inputs, dim, layers, probability, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (B, S, E) of lengths (B,) -> states (B, S, 2D), 0 at padding, and final states of the last layer.

        Final states are hidden and cell, (B, 2D) each: the forward direction's after the last real position, the
        backward direction's after the first. Padding comes last, and there is at least one position a sentence.
        `lengths` are on the CPU, where packing needs them.
        """
        longest = x.size(1)
        if int(lengths.min()) == longest:
            # Without padding nothing needs packing, and plain tensors are faster on CPUs.
            states, (hidden, cell) = self.lstm(x)
        else:
            # Sorted here, because torch would wait for the copy of the order to a GPU.
            lengths, order = lengths.sort(descending=True)
            rows, inverse = (indices.to(x.device, non_blocking=True) for indices in (order, order.argsort()))
            packed, final = self.lstm(pack_padded_sequence(x.index_select(0, rows), lengths, batch_first=True))
            states, _ = pad_packed_sequence(packed, batch_first=True, total_length=longest)
            states = states.index_select(0, inverse)
            hidden, cell = (state.index_select(1, inverse) for state in final)
        return states, torch.cat([hidden[-2], hidden[-1]], -1), torch.cat([cell[-2], cell[-1]], -1)
