"""Transformer layers: attention, feed-forward, encoder and decoder stacks. Shapes: the legend in `types.py`.

Two CPU measures live here (2 cores, short sentences): attention as plain batched matrix products is faster in training
than `scaled_dot_product_attention`, and dropout masks drawn as bytes are faster than one float a cell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.errors import ConfigError
from workflow_src.nn.settings import StackConfig

# Added to the scores of masked positions: exp(-1e4) is 0 in every precision, and 0 * finite is never NaN.
MASKED = -1e4
# Kernels of attention have a dimension of a CUDA grid for rows, and CUDA has no longer ones (pytorch#142228).
MOST_ROWS = 65535


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """Position codes (length, dim) of Vaswani et al. 2017, section 3.5: sines in even columns, cosines in odd."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    codes = torch.empty(length, dim)
    codes[:, 0::2] = angles.sin()
    codes[:, 1::2] = angles.cos()
    return codes


def attention_bias(mask: Tensor, alone: bool = True) -> Tensor | None:
    """Additive scores (B, 1, 1, S) from a mask (B, S); None where the CPU knows that every position is real.

    A mask on a GPU is not read: that would be a synchronisation in every stack, which captured graphs cannot have. A
    graph that is exported for a single sentence has no padding; `alone=False` says that this mask has some there.
    """
    if torch.compiler.is_exporting():
        if alone and mask.size(0) == 1:
            return None
    elif mask.device.type == "cpu" and bool(mask.all()):
        return None
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, MASKED)[:, None, None, :]


def causal_bias(length: int, device: torch.device) -> Tensor:
    """Additive scores (1, 1, T, T) that keep a position from seeing later ones."""
    return torch.full((length, length), MASKED, device=device).triu_(1)[None, None]


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, fused: bool) -> Tensor:
    """Scaled dot-product attention over (B, H, T, D/H) by (B, H, S, D/H); `bias` broadcasts to (B, H, T, S).

    `fused` uses the library's kernel (faster on GPUs and without gradients); the plain products are faster in
    training on CPUs, and have the second derivative that an energy network's training needs.
    """
    if fused:
        return fused_attention(query, key, value, None if bias is None else bias.to(query.dtype))
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores.softmax(-1).to(value.dtype) @ value


def fused_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """`attend` by the library's kernel, for any number of rows B: on a GPU, at most MOST_ROWS at a time.

    `bias` has the type of the queries.
    """
    if not query.is_cuda or query.size(0) <= MOST_ROWS:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    biases = None if bias is None else bias.expand(query.size(0), -1, -1, -1)
    attended = []
    for start in range(0, query.size(0), MOST_ROWS):
        part = slice(start, start + MOST_ROWS)
        part_bias = None if biases is None else biases[part]
        attended.append(fused_attention(query[part], key[part], value[part], part_bias))
    return torch.cat(attended)


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Dropout. On CPUs the mask has one byte a cell, eight from each draw, so the rate is rounded to 1/256, 1/256 at
    least.
    """
    if not training or probability == 0:
        return x
    if x.is_cuda:
        return F.dropout(x, probability, True)
    dropped = min(255, max(1, round(256 * probability)))
    draws = torch.randint(-(2**63), 2**63 - 1, ((x.numel() + 7) // 8,), dtype=torch.int64)
    keep = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
    return x * (keep.to(x.dtype) * (256 / (256 - dropped)))


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence (B, T, D) over itself."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor, bias: Tensor | None, fused: bool) -> Tensor:
        B, T, D = x.shape
        packed = self.query_key_value(x).view(B, T, 3, self.heads, D // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        return self.output(attend(query, key, value, bias, fused).transpose(1, 2).reshape(B, T, D))


class CrossAttention(nn.Module):
    """Multi-head attention of target positions (B, T, D) over source states (B, S, D)."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: Memory, fused: bool) -> Tensor:
        shape = x.shape
        B, T, D = (x := of_sources(x, memory)).shape
        query = self.query(x).view(B, T, self.heads, D // self.heads).transpose(1, 2)
        key, value = memory.keys_values(self)
        return self.output(attend(query, key, value, memory.bias, fused).transpose(1, 2).reshape(shape))

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, D/H) of source states, in the precision of the layer."""
        B, S, D = states.shape
        packed = self.key_value(states.to(self.key_value.weight.dtype)).view(B, S, 2, self.heads, D // self.heads)
        key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        return key, value


def of_sources(x: Tensor, memory: Memory) -> Tensor:
    """Queries (C, T, D) as (B, C / B * T, D): rows that read the same source are one sequence, its keys computed once.

    The rows of a sentence stand side by side, as many for each.
    """
    sentences = memory.states.size(0)
    return x if x.size(0) == sentences else x.reshape(sentences, -1, x.size(-1))


class FeedForward(nn.Module):
    def __init__(self, dim: int, width: int):
        super().__init__()
        self.inner = nn.Linear(dim, width)
        self.outer = nn.Linear(width, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(F.relu(self.inner(x)))


@dataclasses.dataclass(frozen=True)
class Width:
    """The fixed width of outputs (None: not fixed), and the widths that outputs need, as tensors.

    With a fixed width, shapes depend on no value. Outputs that need more positions are wrong.
    """

    size: int | None
    needed: list[Tensor] = dataclasses.field(default_factory=list)

    @property
    def most(self) -> Tensor | None:
        """The largest needed width; None where no width depends on values."""
        return torch.stack(self.needed).amax() if self.needed else None


@dataclasses.dataclass(frozen=True)
class Memory:
    """What an encoder read and put out: states (B, S, D), their mask (B, S) and its additive form, ids (B, S) and their
    embeddings (B, S, D).

    It keeps the keys and values of every layer that attends to it, so that further passes of a layer reuse them.
    """

    states: Tensor
    mask: Tensor
    bias: Tensor | None
    tokens: Tensor
    embedded: Tensor
    # Width of outputs, for programs of static shapes.
    width: Width | None = dataclasses.field(default=None, kw_only=True)
    _kept: dict[tuple[nn.Module, bool], tuple[Tensor, Tensor]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def keys_values(self, attention: CrossAttention) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, D/H) of an attention layer, computed once."""
        if torch.compiler.is_compiling():
            # A compiler shares equal products by itself.
            return attention.keys_values(self.states)
        # What a pass without gradients computed has none for a later pass.
        key = attention, torch.is_grad_enabled()
        if key not in self._kept:
            self._kept[key] = attention.keys_values(self.states)
        return self._kept[key]

    @property
    def fixed(self) -> bool:
        """Whether shapes must not depend on values: in an export, and in a program of static shapes."""
        return torch.compiler.is_exporting() or (self.width is not None and self.width.size is not None)

    def select(self, rows: Tensor) -> Memory:
        """The memory of some sentences: `rows` (any number) of int64 indices into B."""
        states, mask, tokens, embedded = (
            tensor.index_select(0, rows) for tensor in (self.states, self.mask, self.tokens, self.embedded)
        )
        bias = None if self.bias is None else self.bias.index_select(0, rows)
        selected = Memory(states, mask, bias, tokens, embedded, width=self.width)
        for layer, (keys, values) in self._kept.items():
            selected._kept[layer] = keys.index_select(0, rows), values.index_select(0, rows)
        return selected


class Layer(nn.Module):
    """One encoder or decoder layer. Decoder layers attend to a memory between the two other sublayers.

    norm "pre": x + f(norm(x)); "post": norm(x + f(x)), as Vaswani et al. 2017 have it.
    """

    def __init__(self, config: StackConfig, cross: bool):
        super().__init__()
        self.self_attention = SelfAttention(config.dim, config.heads)
        self.self_norm = nn.LayerNorm(config.dim)
        self.cross_attention = CrossAttention(config.dim, config.heads) if cross else None
        self.cross_norm = nn.LayerNorm(config.dim) if cross else nn.Identity()
        self.feed_forward = FeedForward(config.dim, config.feed_forward)
        self.feed_norm = nn.LayerNorm(config.dim)
        self.dropout = config.dropout
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, bias: Tensor | None, memory: Memory | None, fused: bool) -> Tensor:
        x = self._add(x, self.self_norm, lambda h: self.self_attention(h, bias, fused))
        if (cross := self.cross_attention) is not None:
            x = self._add(x, self.cross_norm, lambda h: cross(h, memory, fused))
        return self._add(x, self.feed_norm, self.feed_forward)

    def _add(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + dropout(sublayer(norm(x)), self.dropout, self.training)
        return norm(x + dropout(sublayer(x), self.dropout, self.training))


class Stack(nn.Module):
    """Layers over (B, T, D), and the last norm that pre-norm stacks need.

    With `skip`, the stack's input is added after each layer: x <- (x0 + layer(x)) / sqrt(2).
    """

    def __init__(self, config: StackConfig, layers: int, cross: bool, skip: bool = False):
        super().__init__()
        self.skip = skip
        self.layers = nn.ModuleList(Layer(config, cross) for _ in range(layers))
        self.norm = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()
        # Set while a second derivative is needed: fused kernels have none.
        self.differentiate_twice = False
        # The precision of the layers, where it is lower than that of inputs and outputs (`narrow_stacks`).
        self.dtype: torch.dtype | None = None

    def forward(self, x: Tensor, bias: Tensor | None = None, memory: Memory | None = None) -> Tensor:
        fused = not self.differentiate_twice and (x.is_cuda or not torch.is_grad_enabled())
        input_dtype = x.dtype
        if self.dtype is not None:
            x = x.to(self.dtype)
        stack_input = x
        for layer in self.layers:
            x = layer(x, bias, memory, fused)
            if self.skip:
                x = (stack_input + x) * math.sqrt(0.5)
        x = self.norm(x)
        return x if self.dtype is None else x.to(input_dtype)


def narrow_stacks(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Make all stacks of `model` compute in `dtype`, for inference; their inputs and outputs stay as they are.

    Embeddings, position codes, latents, heads and logits keep their precision: they cost little, and in bfloat16
    (three decimal digits) small steps of a latent are lost and logits tie.
    """
    for submodule in model.modules():
        if isinstance(submodule, Stack):
            submodule.dtype = dtype
            submodule.to(dtype)
    return model


def compile_stacks(model: nn.Module) -> None:
    """Compile every stack of `model` in place (torch.compile), for any shape; names of parameters stay as they are.

    Compiled graphs have no second derivative, so models with `differentiates_twice` stay as they are.
    """
    if getattr(model, "differentiates_twice", False):
        return
    for submodule in model.modules():
        if isinstance(submodule, Stack):
            submodule.compile(dynamic=True)


def embedded(words: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight (V, D) for ids (B, T) int64, or their means under distributions (B, T, V): (B, T, D)."""
    return words.to(weight.dtype) @ weight if words.is_floating_point() else F.embedding(words, weight)


class Embedding(nn.Module):
    """Embeddings times sqrt(D) plus sinusoidal positions, of ids (B, T) int64 or distributions (B, T, V): (B, T, D)."""

    positions: Tensor

    def __init__(self, size: int, config: StackConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, config.dim).normal_(std=config.dim**-0.5))
        self.register_buffer("positions", sinusoidal_positions(config.max_positions, config.dim), persistent=False)
        self.scale = math.sqrt(config.dim)
        self.dropout = config.dropout

    def forward(self, tokens: Tensor) -> Tensor:
        check_length(tokens.size(1), self.positions.size(0))
        x = embedded(tokens, self.weight) * self.scale + self.positions[: tokens.size(1)]
        return dropout(x, self.dropout, self.training)


def check_length(length: int, limit: int) -> None:
    """Raises ConfigError for a sequence longer than the model has positions for; exported graphs do not check it."""
    if not torch.compiler.is_exporting() and length > limit:
        raise ConfigError(
            "model.max_positions",
            limit,
            problem=f"a sentence has {length} subwords",
            hint="split the sentence or train with more positions",
        )


def marked(size: int, symbols: Iterable[int]) -> Tensor:
    """A mask (size,) that is True at the ids of `symbols`."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(symbols)] = True
    return mask


def initialise(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases in every linear layer below `module`."""
    for submodule in module.modules():
        if isinstance(submodule, nn.Linear):
            nn.init.xavier_uniform_(submodule.weight)
            if submodule.bias is not None:
                nn.init.zeros_(submodule.bias)
