"""An autoregressive decoder whose blocks exported graphs compute; keys and values that it has read are kept here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workflow_src.nn.models import rows_of


class ExportedDecoder:
    """An `IncrementalDecoder` of source (B, S). The functions are those of `decoding.drafts.reading_source` and
    `reading_block`."""

    def __init__(
        self,
        read_source: Callable[[Tensor], Sequence[Tensor]],
        read_block: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Sequence[Tensor]],
        source: Tensor,
    ):
        self.read_block, self.source = read_block, source
        (self.source_keys_values,) = read_source(source)
        layers, both, sentences, heads, _, width = self.source_keys_values.shape
        # What rows have read: the first `positions` (N,) of keys and values (layers, 2, N, H, P, D/H).
        self.past = self.source_keys_values.new_zeros(layers, both, sentences, heads, 0, width)
        self.positions = torch.zeros(sentences, dtype=torch.int64)

    def step(self, tokens: Tensor) -> Tensor:
        return self.steps(tokens[:, None])[:, 0]

    def steps(self, tokens: Tensor) -> Tensor:
        past = self.past.contiguous()
        logits, written = self.read_block(self.source, self.source_keys_values, past, self.positions, tokens)
        places = self.positions[:, None] + torch.arange(tokens.size(1))
        self.past = torch.cat([past, torch.zeros_like(written)], 4)
        self.past.scatter_(4, places[None, None, :, None, :, None].expand_as(written), written)
        self.positions = self.positions + tokens.size(1)
        return logits

    def rewind(self, positions: Tensor) -> None:
        self.positions, self.past = positions, self.past.narrow(4, 0, int(positions.max()))

    def reorder(self, rows: Tensor) -> None:
        self.past, self.positions = self.past.index_select(2, rows), self.positions.index_select(0, rows)

    def keep(self, sentences: Tensor) -> None:
        self.reorder(rows_of(sentences, self.positions.size(0) // self.source.size(0)))
        self.source = self.source.index_select(0, sentences)
        self.source_keys_values = self.source_keys_values.index_select(2, sentences)
