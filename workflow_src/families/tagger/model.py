"""A BiLSTM tagger (Tu et al. 2020, section 4.3): LSTM layers, and a linear layer onto the vocabulary at every position.

The paper leaves open how a source of S words is tagged with T target words. Here the first layer reads the source, its
states are copied to T positions, and the second layer reads these. A length head predicts the number of positions.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.tagger import TaggerConfig
from workflow_src.nn.copying import soft_copy
from workflow_src.nn.layers import Memory, dropout, initialise, marked
from workflow_src.nn.length import LengthHead
from workflow_src.nn.models import OnePassModel
from workflow_src.nn.recurrent import BidirectionalLSTM, WordEmbedding
from workflow_src.nn.widths import places
from workflow_src.types import EOS, PAD, Batch


class Tagger(OnePassModel):
    """The output layer has weights of its own, also where source and target share a vocabulary."""

    barred: Tensor

    def __init__(self, config: TaggerConfig, source_size: int, target_size: int, _joint: bool):
        super().__init__()
        self.config = config
        states = 2 * config.dim
        self.embedding = WordEmbedding(source_size, config.embedding_dim, config.dropout, config.max_positions)
        self.encoder = BidirectionalLSTM(config.embedding_dim, config.dim, config.source_layers, config.dropout)
        self.decoder = BidirectionalLSTM(states, config.dim, config.target_layers, config.dropout)
        self.length = LengthHead(states, config.max_length_difference, config.max_positions)
        self.projection = nn.Linear(states, target_size)
        self.register_buffer("barred", marked(target_size, range(EOS + 1)), persistent=False)
        initialise(self)

    # 1. The source.

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states (B, S, 2D) for the positions of the target and the length head."""
        return self._encode(source, (source.cpu() != PAD).sum(1))

    def encode_batch(self, batch: Batch) -> Memory:
        return self._encode(batch.source, batch.source_lengths)

    def _encode(self, source: Tensor, lengths: Tensor) -> Memory:
        embedded = self.embedding(source)
        states, *_ = self.encoder(embedded, lengths)
        return Memory(states, source != PAD, None, source, embedded)

    # 2. The layers over the positions of the target.

    def hidden(self, memory: Memory, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Last states (B, N, 2D) at the positions of targets of lengths (B,), and the mask (B, N) of real ones."""
        config = self.config
        positions, mask = places(lengths, config.max_positions, memory)
        copied = soft_copy(memory, lengths, positions).to(memory.states.dtype)
        states = self.decoder(dropout(copied, config.dropout, self.training), lengths.cpu())[0]
        return dropout(states, config.dropout, self.training), mask

    # 3. Words.

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., 2D) -> (..., V): -inf for padding, start and end symbols."""
        return F.linear(hidden, self.projection.weight, self.projection.bias.masked_fill(self.barred, float("-inf")))
