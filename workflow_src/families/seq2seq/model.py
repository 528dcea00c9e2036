"""The LSTM encoder-decoder with global attention (Luong, Pham & Manning 2015), and its cached step for searching.

A bidirectional LSTM reads the source. The decoder's LSTM reads the words before; its first hidden states and cells are
linear in the final states of the encoder's last layer. With h_t the decoder's last layer and s_i the source states,

    a_t = softmax_i(h_t W_a s_i),    c_t = sum_i a_ti s_i,    v_t = tanh(W_c [c_t; h_t]),
    p(y_t | y_<t, x) = softmax(E v_t + b)

(the paper's "general" score), where E are the embeddings of words. v_t is not fed back to the next position (no "input
feeding"), so that all positions of a known output are one pass.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.seq2seq import Seq2SeqConfig
from workflow_src.nn.layers import Memory, attention_bias, check_length, dropout, initialise
from workflow_src.nn.models import AutoregressiveModel, rows_of
from workflow_src.nn.recurrent import BidirectionalLSTM, WordEmbedding, lstm
from workflow_src.types import PAD, Batch, with_start


@dataclasses.dataclass(frozen=True)
class SourceStates(Memory):
    """Source states (B, S, 2 encoder_dim) with tensors that are computed from them once a sentence.

    keys (B, S, D) that the decoder's states are compared with; the decoder's first `hidden` and `cell`, (layers, B, D).
    """

    keys: Tensor
    hidden: Tensor
    cell: Tensor

    def select(self, rows: Tensor) -> SourceStates:
        """States of some sentences: `rows` are int64 indices into B, of any number."""
        chosen = super().select(rows)
        keys, hidden, cell = (
            tensor.index_select(dim, rows) for tensor, dim in ((self.keys, 0), (self.hidden, 1), (self.cell, 1))
        )
        return SourceStates(chosen.states, chosen.mask, chosen.bias, chosen.tokens, chosen.embedded, keys, hidden, cell)


class Seq2Seq(AutoregressiveModel):
    """LSTMs with attention; one embedding for source, target and output when the vocabulary is joint."""

    target_embedding: WordEmbedding

    def __init__(self, config: Seq2SeqConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        dim, layers, width = config.dim, config.decoder_layers, 2 * config.encoder_dim
        self.source_embedding = self._embedding(source_size)
        self.target_embedding = self.source_embedding if joint else self._embedding(target_size)
        self.encoder = BidirectionalLSTM(
            config.embedding_dim, config.encoder_dim, config.encoder_layers, config.dropout
        )
        self.first_hidden = nn.Linear(width, layers * dim)
        self.first_cell = nn.Linear(width, layers * dim)
        self.decoder = lstm(config.embedding_dim, dim, layers, config.dropout)
        self.key = nn.Linear(width, dim, bias=False)
        self.attentional = nn.Linear(width + dim, config.embedding_dim)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)

    def _embedding(self, size: int) -> WordEmbedding:
        config = self.config
        return WordEmbedding(size, config.embedding_dim, config.dropout, config.max_positions)

    def encode(self, source: Tensor) -> SourceStates:
        """Source (B, S) -> states for the decoder."""
        return self._encode(source, (source.cpu() != PAD).sum(1))

    def encode_batch(self, batch: Batch) -> SourceStates:
        return self._encode(batch.source, batch.source_lengths)

    def _encode(self, source: Tensor, lengths: Tensor) -> SourceStates:
        mask = source != PAD
        embedded = self.source_embedding(source)
        states, hidden, cell = self.encoder(embedded, lengths)
        first_states = (
            linear(final).unflatten(1, (self.config.decoder_layers, -1)).transpose(0, 1).contiguous()
            for linear, final in ((self.first_hidden, hidden), (self.first_cell, cell))
        )
        bias = attention_bias(mask)
        return SourceStates(states, mask, bias, source, embedded, self.key(states), *first_states)

    def hidden(self, memory: SourceStates, target: Tensor) -> Tensor:
        """Inputs (B, T+1, embedding_dim) of the output projection when the decoder reads BOS and then target.

        Target: ids (B, T) or distributions (B, T, V). Padding needs no packing here: no real position sees it.
        """
        x, _ = self.decoder(self.target_embedding(with_start(target)), (memory.hidden, memory.cell))
        bias = None if memory.bias is None else memory.bias[:, 0]
        states = attentional_states(self.attentional, x, memory.keys, memory.states, bias)
        return dropout(states, self.config.dropout, self.training)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.target_embedding.weight, self.output_bias)

    def start(self, memory: SourceStates) -> CachedDecoder:
        return CachedDecoder(self, memory)


def attentional_states(linear: nn.Linear, hidden: Tensor, keys: Tensor, states: Tensor, bias: Tensor | None) -> Tensor:
    """tanh(W_c [c_t; h_t]), (B, T, E), of decoder states h (B, T, D), keys (B, S, D) and source states (B, S, 2D').

    `bias` (B, 1, S) is added to the scores.
    """
    scores = hidden @ keys.transpose(1, 2)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    context = scores.softmax(-1).to(states.dtype) @ states
    return linear(torch.cat([context, hidden], -1)).tanh()


class CachedDecoder:
    """The decoder one position at a time (`AutoregressiveModel.start`), with the LSTM's states kept.

    Keys and states of the source are not repeated for the hypotheses of a sentence.
    """

    def __init__(self, model: Seq2Seq, memory: SourceStates):
        self.model = model
        self.position = 0
        self.sentences = memory.states.size(0)
        self.keys, self.states = memory.keys, memory.states
        self.bias = None if memory.bias is None else memory.bias[:, 0].to(memory.states.dtype)
        self.hidden, self.cell = list(memory.hidden), list(memory.cell)
        # What rows have read less than `position`, (N,), where they differ.
        self.behind: Tensor | None = None
        # States before the last block and after each of its tokens, (2, layers, N, D) each.
        self.past: list[Tensor] = []
        self.layers = model.decoder.all_weights
        self.embedding, self.scale = model.target_embedding.weight, model.target_embedding.scale

    def step(self, tokens: Tensor) -> Tensor:
        check_length(self.position + 1, self.model.config.max_positions)
        self.past = []
        return self._logits(self._read(tokens))

    def steps(self, tokens: Tensor) -> Tensor:
        self.past, hidden = [self._kept()], []
        for column in tokens.unbind(1):
            hidden.append(self._read(column))
            self.past.append(self._kept())
        return self._logits(torch.stack(hidden, 1).flatten(0, 1)).unflatten(0, tokens.shape)

    def rewind(self, positions: Tensor) -> None:
        first = self.position - len(self.past) + 1
        self.position = int(positions.max())
        positions = positions.to(self.keys.device, non_blocking=True)
        read = positions - first if self.behind is None else positions - first + self.behind
        kept = torch.stack(self.past)[read, :, :, torch.arange(read.size(0), device=read.device)]
        hidden, cell = kept.permute(1, 2, 0, 3).unbind(0)
        self.hidden = list(hidden)
        self.cell = list(cell)
        self.past = []
        self.behind = self.position - positions

    def _kept(self) -> Tensor:
        return torch.stack([*self.hidden, *self.cell]).unflatten(0, (2, -1))

    def _read(self, tokens: Tensor) -> Tensor:
        """Read one token a row, (N,); states (N, D) of the last layer."""
        self.position += 1
        x = self.embedding.index_select(0, tokens) * self.scale
        for index, layer in enumerate(self.layers):
            x, self.cell[index] = torch.lstm_cell(x, (self.hidden[index], self.cell[index]), *layer)
            self.hidden[index] = x
        return x

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits (R, V) after states (R, D), as many for each sentence."""
        # To its source, hypotheses of a sentence and their positions are what positions are in a whole pass.
        rows = hidden.view(self.sentences, -1, hidden.size(-1))
        states = attentional_states(self.model.attentional, rows, self.keys, self.states, self.bias)
        return self.model.logits(states.flatten(0, 1))

    def reorder(self, rows: Tensor) -> None:
        self.hidden = [states.index_select(0, rows) for states in self.hidden]
        self.cell = [states.index_select(0, rows) for states in self.cell]
        self.past = [states.index_select(2, rows) for states in self.past]
        if self.behind is not None:
            self.behind = self.behind.index_select(0, rows)

    def keep(self, sentences: Tensor) -> None:
        self.reorder(rows_of(sentences, self.hidden[0].size(0) // self.sentences))
        self.keys, self.states = self.keys.index_select(0, sentences), self.states.index_select(0, sentences)
        if self.bias is not None:
            self.bias = self.bias.index_select(0, sentences)
        self.sentences = sentences.numel()
