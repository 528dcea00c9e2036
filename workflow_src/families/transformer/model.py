"""The autoregressive Transformer (Vaswani et al. 2017), and its cached step for searching."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.transformer import TransformerConfig
from workflow_src.nn.layers import (
    Embedding,
    Layer,
    Memory,
    Stack,
    causal_bias,
    check_length,
    fused_attention,
    initialise,
)
from workflow_src.nn.models import AutoregressiveModel, EncoderDecoder
from workflow_src.types import with_start


class Transformer(EncoderDecoder, AutoregressiveModel):
    """Encoder-decoder with one embedding for source, target and output when the vocabulary is joint."""

    target_embedding: Embedding
    shares_source = True

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int, joint: bool):
        super().__init__(config, source_size, target_size, joint)
        self.decoder = Stack(config, config.decoder_layers, cross=True)
        initialise(self)

    def hidden(self, memory: Memory, target: Tensor) -> Tensor:
        """Last decoder states (B, T+1, D) when the decoder reads BOS and then target: ids (B, T) or distributions.

        Padding needs no mask here: it comes last, and no real position sees a later one.
        """
        inputs = with_start(target)
        return self.decoder(self.target_embedding(inputs), causal_bias(inputs.size(1), inputs.device), memory)

    def start(self, memory: Memory) -> CachedDecoder:
        return CachedDecoder(self, memory, memory.states.new_empty(self._cache_shape(memory, 1, 32)))

    def start_fixed(self, memory: Memory, width: int, length: int, cache: Tensor | None = None) -> FixedDecoder:
        if cache is None:
            # Finite everywhere: masked positions count zero times.
            cache = memory.states.new_zeros(self._cache_shape(memory, width, length))
        return FixedDecoder(self, memory, cache)

    def _cache_shape(self, memory: Memory, width: int, length: int) -> tuple[int, ...]:
        config = self.config
        rows = memory.states.size(0) * width
        return config.decoder_layers, 2, rows, config.heads, length, config.dim // config.heads


class CachedDecoder:
    """The decoder one position at a time, with keys and values kept.

    Rows are hypotheses: `width` of them for each source sentence, next to each other. Keys and values of the source
    (layers, 2, B, H, S, D/H) are computed once and not repeated for the hypotheses of a sentence; those of the target
    (layers, 2, rows, H, positions, D/H) lie in one preallocated tensor that doubles when full.
    """

    def __init__(self, model: Transformer, memory: Memory, cache: Tensor):
        self.model = model
        self.sentences = memory.states.size(0)
        self.heads = model.config.heads
        self.length = 0
        keys_values: list[Tensor] = []
        # One look-up a search instead of one a step: on single sentences Python is a good part of the time.
        self.layers = []
        for layer in model.decoder.layers:
            assert isinstance(layer, Layer) and layer.cross_attention is not None
            keys_values += layer.cross_attention.keys_values(memory.states)
            self.layers.append(_layer_weights(layer))
        self.source = torch.stack(keys_values).unflatten(0, (len(self.layers), 2))
        self.bias = None if memory.bias is None else memory.bias.to(memory.states.dtype)
        self.cache = cache
        self.embedding = model.target_embedding.weight
        self.positions = model.target_embedding.positions
        self.scale = model.target_embedding.scale
        self.pre = model.config.norm == "pre"

    @property
    def source(self) -> Tensor:
        return self._source

    @source.setter
    def source(self, keys_values: Tensor) -> None:
        self._source = keys_values
        self.source_layers = [layer.unbind(0) for layer in keys_values.unbind(0)]

    def _position_code(self) -> Tensor:
        """The code (D,) or (1, D) of the position that is read."""
        if self.length >= self.positions.size(0):
            check_length(self.length + 1, self.positions.size(0))
        if self.length == self.cache.size(4):
            self.cache = torch.cat([self.cache, torch.empty_like(self.cache)], 4)
        return self.positions[self.length]

    def _append(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keep the keys and values (2, rows, H, D/H) of the position; keys, values and bias of all positions so far."""
        cache = self.cache[layer]
        cache.select(3, self.length).copy_(keys_values)
        keys, values = cache.narrow(3, 0, self.length + 1).unbind(0)
        return keys, values, None

    def _advance(self) -> None:
        self.length += 1

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token a row, (N,) int64, and give logits (N, V) for the next one."""
        heads, pre = self.heads, self.pre
        x = torch.add(self._position_code(), self.embedding.index_select(0, tokens), alpha=self.scale)
        rows, dim = x.shape
        width, shape, head_dim = rows // self.sentences, (dim,), dim // heads
        for index, (self_norm, packed, self_out, cross_norm, query, cross_out, feed_norm, inner, outer) in enumerate(
            self.layers
        ):
            h = F.layer_norm(x, shape, *self_norm) if pre else x
            qkv = F.linear(h, *packed).view(rows, 3, heads, head_dim)
            keys, values, bias = self._append(index, qkv.narrow(1, 1, 2).transpose(0, 1))
            h = fused_attention(qkv.select(1, 0).unsqueeze(2), keys, values, bias)
            x = x + F.linear(h.reshape(rows, dim), *self_out)
            if not pre:
                x = F.layer_norm(x, shape, *self_norm)
            h = F.layer_norm(x, shape, *cross_norm) if pre else x
            q = F.linear(h, *query).view(self.sentences, width, heads, head_dim).transpose(1, 2)
            source_keys, source_values = self.source_layers[index]
            h = fused_attention(q, source_keys, source_values, self.bias)
            x = x + F.linear(h.transpose(1, 2).reshape(rows, dim), *cross_out)
            if not pre:
                x = F.layer_norm(x, shape, *cross_norm)
            h = F.layer_norm(x, shape, *feed_norm) if pre else x
            x = x + F.linear(F.relu(F.linear(h, *inner)), *outer)
            if not pre:
                x = F.layer_norm(x, shape, *feed_norm)
        self._advance()
        return self.model.logits(self.model.decoder.norm(x))

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue what row `rows[i]` has read; also widens from one row a sentence to several."""
        if self.cache.size(2) != rows.numel():
            self.cache = self.cache.index_select(2, rows)
        else:
            filled = self.cache[:, :, :, :, : self.length]
            self.cache[:, :, :, :, : self.length] = filled.index_select(2, rows)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64 indices), with all their rows."""
        width = self.cache.size(2) // self.sentences
        rows = (sentences[:, None] * width + torch.arange(width, device=sentences.device)).view(-1)
        self.cache = self.cache.index_select(2, rows)
        self.source = self.source.index_select(2, sentences)
        if self.bias is not None:
            self.bias = self.bias.index_select(0, sentences)
        self.sentences = sentences.numel()


class FixedDecoder(CachedDecoder):
    """`CachedDecoder` whose shapes depend on no value: it reads all positions of the cache, and masks later ones.

    Changes make new tensors, but `step` writes the cache.
    """

    bias: Tensor

    def __init__(self, model: Transformer, memory: Memory, cache: Tensor):
        if memory.bias is None:
            bias = memory.states.new_zeros(memory.mask.shape)[:, None, None]
            memory = dataclasses.replace(memory, bias=bias)
        super().__init__(model, memory, cache)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.source.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that a search changes, by name."""
        return {"cache": self.cache, "source": self.source, "bias": self.bias, "position": self.position}

    def lengthen(self, length: int) -> None:
        """Make room for `length` positions."""
        self.cache = F.pad(self.cache, (0, 0, 0, length - self.cache.size(4)))

    def _position_code(self) -> Tensor:
        places = torch.arange(self.cache.size(4), device=self.position.device)
        unwritten = (places > self.position)[None, None, None]
        # Not MASKED: what lies there may be as large as that.
        self.self_bias = torch.zeros_like(unwritten, dtype=self.cache.dtype).masked_fill_(unwritten, float("-inf"))
        # A block of steps may go on behind the longest output.
        return self.positions.index_select(0, self.position.clamp(max=self.positions.size(0) - 1))

    def _append(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        cache = self.cache[layer]
        cache.index_copy_(3, self.position, keys_values.unsqueeze(3))
        keys, values = cache.unbind(0)
        return keys, values, self.self_bias

    def _advance(self) -> None:
        self.position = self.position + 1

    def reorder(self, rows: Tensor) -> None:
        self.cache = self.cache.index_select(2, rows)


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
