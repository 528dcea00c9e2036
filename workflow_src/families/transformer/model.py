"""The autoregressive Transformer (Vaswani et al. 2017), and its cached step for searching."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.families.transformer import TransformerConfig
from workflow_src.nn.layers import (
    CrossAttention,
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
from workflow_src.nn.models import BlockModel, EncoderDecoder, rows_of
from workflow_src.types import PAD, with_start


class Transformer(EncoderDecoder, BlockModel):
    """Encoder-decoder with one embedding for source, target and output when the vocabulary is joint."""

    target_embedding: Embedding
    shares_source = True
    can_start_fixed = True

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
        cache = memory.states.new_zeros(self._cache_shape(memory, 1, 32))
        return CachedDecoder(self, self._source_keys_values(memory), memory.bias, cache)

    def start_fixed(self, memory: Memory, width: int, length: int, cache: Tensor | None = None) -> FixedDecoder:
        if cache is None:
            cache = memory.states.new_zeros(self._cache_shape(memory, width, length))
        bias = memory.states.new_zeros(memory.mask.shape)[:, None, None] if memory.bias is None else memory.bias
        return FixedDecoder(self, self._source_keys_values(memory), bias, cache)

    def read_source(self, source: Tensor) -> Tensor:
        return self._source_keys_values(self.encode(source))

    def read_block(
        self, source: Tensor, source_keys_values: Tensor, past: Tensor, begins: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        decoder = BlockDecoder(self, source_keys_values, attention_bias(source != PAD), past, begins)
        return decoder.steps(tokens), torch.stack(decoder.written)

    def _source_keys_values(self, memory: Memory) -> Tensor:
        """Keys and values (layers, 2, B, H, S, D/H) of the source for all layers."""
        keys_values: list[Tensor] = []
        for _, cross in _layers(self):
            keys_values += cross.keys_values(memory.states)
        return torch.stack(keys_values).unflatten(0, (self.config.decoder_layers, 2))

    def _cache_shape(self, memory: Memory, width: int, length: int) -> tuple[int, ...]:
        config = self.config
        rows = memory.states.size(0) * width
        return config.decoder_layers, 2, rows, config.heads, length, config.dim // config.heads


class CachedDecoder:
    """The decoder one position at a time, with keys and values kept.

    Rows are hypotheses: `width` of them for each source sentence, next to each other. Keys and values of the source
    (layers, 2, B, H, S, D/H) are computed once and not repeated for the hypotheses of a sentence; those of the target
    (layers, 2, rows, H, positions, D/H) lie in one preallocated tensor that doubles when full. It is finite everywhere:
    masked positions count zero times.
    """

    def __init__(self, model: Transformer, source: Tensor, bias: Tensor | None, cache: Tensor):
        self.model = model
        self.sentences = source.size(2)
        self.heads = model.config.heads
        # Positions that are read, at most; those of each row (N,) where they differ.
        self.length = 0
        self.lengths: Tensor | None = None
        # One look-up a search instead of one a step: on single sentences Python is a good part of the time.
        self.layers = [_layer_weights(layer, cross) for layer, cross in _layers(model)]
        self.source = source
        self.bias = None if bias is None else bias.to(source.dtype)
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

    def _begin(self, count: int) -> Tensor:
        """Make room for `count` tokens a row, and decide what sees what. Codes (D,) or (N * count, D)."""
        end = self.length + count
        if count == 1 and end > self.positions.size(0):
            check_length(end, self.positions.size(0))
        while end > self.cache.size(4):
            self.cache = torch.cat([self.cache, torch.zeros_like(self.cache)], 4)
        if self.lengths is None and count == 1:
            self.self_bias = None
            return self.positions[self.length]
        self.places = self._places(count)[None] + (self.length if self.lengths is None else self.lengths[:, None])
        self.self_bias = self._later(self.places, self._places(end))
        return self._codes(self.places)

    def _places(self, end: int) -> Tensor:
        return torch.arange(end, device=self.cache.device)

    def _later(self, places: Tensor, seen: Tensor) -> Tensor:
        """Scores (N or 1, 1, m, P) that keep tokens at places (N or 1, m) from seeing later ones of those at places
        `seen`, (P,) or (N, 1, 1, P)."""
        later = seen > places[:, None, :, None]
        # Not MASKED: what lies there may be as large as that.
        return torch.zeros_like(later, dtype=self.cache.dtype).masked_fill_(later, float("-inf"))

    def _codes(self, places: Tensor) -> Tensor:
        """Codes (N * m, D) of places (N or 1, m), or (1, D) of one; padding may stand behind the last."""
        if places.numel() > 1:
            places = places.expand(self.cache.size(2), -1)
        return self.positions.index_select(0, places.flatten().clamp(max=self.positions.size(0) - 1))

    def _append(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values (2, rows, H, m, D/H) of a block; keys and values of all positions so far."""
        cache, count = self.cache[layer], keys_values.size(3)
        if self.lengths is None:
            cache.narrow(3, self.length, count).copy_(keys_values)
        else:
            _write(cache, self.places, keys_values)
        keys, values = cache.narrow(3, 0, self.length + count).unbind(0)
        return keys, values

    def _advance(self, count: int) -> None:
        self.length += count
        if self.lengths is not None:
            self.lengths = self.lengths + count

    def step(self, tokens: Tensor) -> Tensor:
        return self._read(tokens, 1)

    def steps(self, tokens: Tensor) -> Tensor:
        return self._read(tokens.flatten(), tokens.size(1)).unflatten(0, tokens.shape)

    def rewind(self, positions: Tensor) -> None:
        shortest, longest = (int(length) for length in positions.aminmax())
        self.length = longest
        self.lengths = None if shortest == longest else positions.to(self.cache.device, non_blocking=True)

    def _read(self, tokens: Tensor, count: int) -> Tensor:
        """Read tokens (N * m,), `count` = m of each row; logits (N * m, V) for the next ones."""
        heads, pre = self.heads, self.pre
        x = torch.add(self._begin(count), self.embedding.index_select(0, tokens), alpha=self.scale)
        size, dim = x.shape
        rows, width, shape, head_dim = size // count, size // self.sentences, (dim,), dim // heads
        for index, (self_norm, packed, self_out, cross_norm, query, cross_out, feed_norm, inner, outer) in enumerate(
            self.layers
        ):
            h = F.layer_norm(x, shape, *self_norm) if pre else x
            qkv = F.linear(h, *packed).view(rows, count, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
            keys, values = self._append(index, qkv.narrow(0, 1, 2))
            h = fused_attention(qkv.select(0, 0), keys, values, self.self_bias)
            x = x + F.linear(h.transpose(1, 2).reshape(size, dim), *self_out)
            if not pre:
                x = F.layer_norm(x, shape, *self_norm)
            h = F.layer_norm(x, shape, *cross_norm) if pre else x
            # To its source, a block is as many hypotheses.
            q = F.linear(h, *query).view(self.sentences, width, heads, head_dim).transpose(1, 2)
            source_keys, source_values = self.source_layers[index]
            h = fused_attention(q, source_keys, source_values, self.bias)
            x = x + F.linear(h.transpose(1, 2).reshape(size, dim), *cross_out)
            if not pre:
                x = F.layer_norm(x, shape, *cross_norm)
            h = F.layer_norm(x, shape, *feed_norm) if pre else x
            x = x + F.linear(F.relu(F.linear(h, *inner)), *outer)
            if not pre:
                x = F.layer_norm(x, shape, *feed_norm)
        self._advance(count)
        return self.model.logits(self.model.decoder.norm(x))

    def reorder(self, rows: Tensor) -> None:
        if self.lengths is not None:
            self.lengths = self.lengths.index_select(0, rows)
        if self.cache.size(2) != rows.numel():
            self.cache = self.cache.index_select(2, rows)
        else:
            filled = self.cache[:, :, :, :, : self.length]
            self.cache[:, :, :, :, : self.length] = filled.index_select(2, rows)

    def keep(self, sentences: Tensor) -> None:
        width = self.cache.size(2) // self.sentences
        rows = rows_of(sentences, width)
        self.cache = self.cache.index_select(2, rows)
        if self.lengths is not None:
            self.lengths = self.lengths.index_select(0, rows)
        self.source = self.source.index_select(2, sentences)
        if self.bias is not None:
            self.bias = self.bias.index_select(0, sentences)
        self.sentences = sentences.numel()


class FixedDecoder(CachedDecoder):
    """`CachedDecoder` whose shapes depend on no value: it reads all positions of the cache, and masks later ones.

    Changes make new tensors, but `step` writes the cache.
    """

    bias: Tensor

    def __init__(self, model: Transformer, source: Tensor, bias: Tensor, cache: Tensor):
        super().__init__(model, source, bias, cache)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.source.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that a search changes, by name."""
        return {"cache": self.cache, "source": self.source, "bias": self.bias, "position": self.position}

    def lengthen(self, length: int) -> None:
        """Make room for `length` positions."""
        self.cache = F.pad(self.cache, (0, 0, 0, length - self.cache.size(4)))

    def rewind(self, positions: Tensor) -> None:
        """`CachedDecoder.rewind`; reads no value. Each row has a position of its own from here on."""
        self.position = positions

    def _begin(self, count: int) -> Tensor:
        self.places = self.position[:, None]
        if count > 1:
            self.places = self.places + self._places(count)
        self.self_bias = self._later(self.places, self._places(self.cache.size(4)))
        # A block of steps may go on behind the longest output.
        return self._codes(self.places)

    def _append(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        cache = self.cache[layer]
        if self.places.size(0) == 1:
            cache.index_copy_(3, self.places[0], keys_values)
        else:
            _write(cache, self.places, keys_values)
        keys, values = cache.unbind(0)
        return keys, values

    def _advance(self, count: int) -> None:
        self.position = self.position + count

    def reorder(self, rows: Tensor) -> None:
        self.cache = self.cache.index_select(2, rows)
        self._select_positions(rows)

    def keep(self, sentences: Tensor) -> None:
        width = self.cache.size(2) // self.sentences
        super().keep(sentences)
        self._select_positions(rows_of(sentences, width))

    def _select_positions(self, rows: Tensor) -> None:
        if self.position.size(0) > 1:
            self.position = self.position.index_select(0, rows)


class BlockDecoder(CachedDecoder):
    """`CachedDecoder` as a function of tensors: it reads one block, and changes nothing of what came before.

    Rows have read the first `begins` (rows,) positions of the cache (layers, 2, rows, H, P, D/H).
    """

    def __init__(self, model: Transformer, source: Tensor, bias: Tensor | None, cache: Tensor, begins: Tensor):
        super().__init__(model, source, bias, cache)
        self.begins = begins
        # Keys and values (2, rows, H, m, D/H) of the block, by layer.
        self.written: list[Tensor] = []

    def _begin(self, count: int) -> Tensor:
        # Keys are those of the cache, then those of the block.
        begin = self.begins[:, None]
        places, kept = begin + self._places(count), self._places(self.cache.size(4))
        # What lies behind the positions of a row is later than the block.
        kept = torch.where(kept < begin, kept, begin + count)
        self.self_bias = self._later(places, torch.cat([kept, places], 1)[:, None, None])
        return self._codes(places)

    def _append(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        self.written.append(keys_values)
        keys, values = torch.cat([self.cache[layer], keys_values], 3).unbind(0)
        return keys, values


def _write(cache: Tensor, places: Tensor, keys_values: Tensor) -> None:
    """Write keys and values (2, rows, H, m, D/H) into a layer's cache, at the places (rows, m) of each row."""
    cache.scatter_(3, places[None, :, None, :, None].expand_as(keys_values), keys_values)


def _layers(model: Transformer) -> Iterator[tuple[Layer, CrossAttention]]:
    """The decoder's layers, each with its attention to the source."""
    for layer in model.decoder.layers:
        assert isinstance(layer, Layer) and layer.cross_attention is not None, "decoder layers attend to the source"
        yield layer, layer.cross_attention


def _layer_weights(layer: Layer, cross: CrossAttention) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of a decoder layer's parts, in the order in which a step uses them."""
    attention, feed = layer.self_attention, layer.feed_forward
    assert isinstance(layer.cross_norm, nn.LayerNorm)
    modules: list[nn.Linear | nn.LayerNorm] = [
        layer.self_norm,
        attention.query_key_value,
        attention.output,
        layer.cross_norm,
    ]
    modules += [cross.query, cross.output, layer.feed_norm, feed.inner, feed.outer]
    return [(module.weight, module.bias) for module in modules]
