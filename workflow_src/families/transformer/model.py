"""The autoregressive Transformer (Vaswani et al. 2017), and its cached step for searching."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.autoregressive import Autoregressive
from workflow_src.families.transformer import TransformerConfig
from workflow_src.nn.layers import (
    Embedding,
    Layer,
    Memory,
    Stack,
    attention_bias,
    causal_bias,
    check_length,
    fused_attention,
    initialise,
)
from workflow_src.types import PAD, with_start


class Transformer(Autoregressive):
    """Encoder-decoder with one embedding for source, target and output when the vocabulary is joint."""

    # Keys of one source serve several outputs (`decoding.ranking`).
    shares_source = True
    target_embedding: Embedding

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int, joint: bool):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.decoder = Stack(config, config.decoder_layers, cross=True)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        initialise(self)

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states for the decoder."""
        mask = source != PAD
        bias = attention_bias(mask)
        return Memory(self.encoder(self.source_embedding(source), bias), mask, bias)

    def hidden(self, memory: Memory, target: Tensor) -> Tensor:
        """Last decoder states (B, T+1, D) when the decoder reads BOS and then target: ids (B, T) or distributions.

        Padding needs no mask here: it comes last, and no real position sees a later one.
        """
        inputs = with_start(target)
        return self.decoder(self.target_embedding(inputs), causal_bias(inputs.size(1), inputs.device), memory)

    def start(self, memory: Memory) -> CachedDecoder:
        return CachedDecoder(self, memory)


class CachedDecoder:
    """The decoder one position at a time, with keys and values kept.

    Rows are hypotheses: `width` of them for each source sentence, next to each other. Keys and values of the source
    are computed once and not repeated for the hypotheses of a sentence; those of the target lie in one preallocated
    tensor that doubles when full.
    """

    def __init__(self, model: Transformer, memory: Memory):
        self.model = model
        self.sentences = memory.states.size(0)
        self.heads = model.config.heads
        self.position = 0
        layers = model.decoder.layers
        self.source_keys, self.source_values = [], []
        # One look-up a search instead of one a step: on single sentences Python is a good part of the time.
        self.layers = []
        for layer in layers:
            assert isinstance(layer, Layer) and layer.cross_attention is not None
            key, value = layer.cross_attention.keys_values(memory.states)
            self.source_keys.append(key.contiguous())
            self.source_values.append(value.contiguous())
            self.layers.append(_layer_weights(layer))
        self.bias = None if memory.bias is None else memory.bias.to(memory.states.dtype)
        shape = (len(layers), 2, self.sentences, self.heads, 32, model.config.dim // self.heads)
        self.cache = memory.states.new_empty(shape)
        self.embedding = model.target_embedding.weight
        self.positions = model.target_embedding.positions
        self.scale = model.target_embedding.scale
        self.pre = model.config.norm == "pre"

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token a row, (N,) int64, and give logits (N, V) for the next one."""
        position, heads, pre = self.position, self.heads, self.pre
        if position >= self.positions.size(0):
            check_length(position + 1, self.positions.size(0))
        if position == self.cache.size(4):
            self.cache = torch.cat([self.cache, torch.empty_like(self.cache)], 4)
        rows = tokens.size(0)
        width = rows // self.sentences
        x = torch.add(self.positions[position], self.embedding.index_select(0, tokens), alpha=self.scale)
        dim = x.size(1)
        shape, head_dim = (dim,), dim // heads
        for index, (self_norm, packed, self_out, cross_norm, query, cross_out, feed_norm, inner, outer) in enumerate(
            self.layers
        ):
            h = F.layer_norm(x, shape, *self_norm) if pre else x
            qkv = F.linear(h, *packed).view(rows, 3, heads, head_dim)
            cache = self.cache[index]
            cache[:, :, :, position] = qkv[:, 1:].transpose(0, 1)
            keys, values = cache[:, :, :, : position + 1].unbind(0)
            h = fused_attention(qkv[:, 0].unsqueeze(2), keys, values)
            x = x + F.linear(h.reshape(rows, dim), *self_out)
            if not pre:
                x = F.layer_norm(x, shape, *self_norm)
            h = F.layer_norm(x, shape, *cross_norm) if pre else x
            q = F.linear(h, *query).view(self.sentences, width, heads, head_dim).transpose(1, 2)
            h = fused_attention(q, self.source_keys[index], self.source_values[index], self.bias)
            x = x + F.linear(h.transpose(1, 2).reshape(rows, dim), *cross_out)
            if not pre:
                x = F.layer_norm(x, shape, *cross_norm)
            h = F.layer_norm(x, shape, *feed_norm) if pre else x
            x = x + F.linear(F.relu(F.linear(h, *inner)), *outer)
            if not pre:
                x = F.layer_norm(x, shape, *feed_norm)
        self.position += 1
        return self.model.logits(self.model.decoder.norm(x))

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue what row `rows[i]` has read; also widens from one row a sentence to several."""
        if self.cache.size(2) != rows.numel():
            self.cache = self.cache.index_select(2, rows)
        else:
            filled = self.cache[:, :, :, :, : self.position]
            self.cache[:, :, :, :, : self.position] = filled.index_select(2, rows)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64 indices), with all their rows."""
        width = self.cache.size(2) // self.sentences
        rows = (sentences[:, None] * width + torch.arange(width, device=sentences.device)).view(-1)
        self.cache = self.cache.index_select(2, rows)
        self.source_keys = [key.index_select(0, sentences) for key in self.source_keys]
        self.source_values = [value.index_select(0, sentences) for value in self.source_values]
        if self.bias is not None:
            self.bias = self.bias.index_select(0, sentences)
        self.sentences = sentences.numel()


def _layer_weights(layer: Layer) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of a decoder layer's parts, in the order in which a step uses them."""
    attention, cross, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
    assert cross is not None and isinstance(layer.cross_norm, nn.LayerNorm), "decoder layers attend to the source"
    modules: list[nn.Linear | nn.LayerNorm] = [
        layer.self_norm,
        attention.query_key_value,
        attention.output,
        layer.cross_norm,
    ]
    modules += [cross.query, cross.output, layer.feed_norm, feed.inner, feed.outer]
    return [(module.weight, module.bias) for module in modules]
