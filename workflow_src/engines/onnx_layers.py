"""Operators of ONNX Runtime that replace layers of `nn/` in an export: attention and LSTMs.

They replace these layers in models of all families, and compute the same.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from workflow_src.nn.layers import MASKED, CrossAttention, Memory, SelfAttention, of_sources
from workflow_src.nn.recurrent import BidirectionalLSTM


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """Multi-head attention of (B, T, D) over keys and values (B, S, D), one operator of ONNX Runtime.

    `bias` is additive: (B, 1, 1, S) as `attention_bias` makes it, or one for each pair of positions (1, 1, T, T).
    """
    inputs: list[Tensor | None] = [query, key, value]
    if bias is not None and bias.size(2) == 1:
        # A mask of source positions; the operator repeats it for all queries.
        inputs += [None, (bias[:, 0, 0] > MASKED / 2).int()]
    elif bias is not None:
        inputs += [None, None, bias]
    return torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        inputs,
        {"num_heads": heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )


class FusedSelfAttention(SelfAttention):
    """The layer itself, with another `forward`."""

    def __init__(self, layer: SelfAttention):
        nn.Module.__init__(self)
        self.heads = layer.heads
        self.query_key_value = layer.query_key_value
        self.output = layer.output

    def forward(self, x: Tensor, bias: Tensor | None, _fused: bool) -> Tensor:
        query, key, value = self.query_key_value(x).split(x.size(-1), -1)
        return self.output(attend(query, key, value, bias, self.heads))


class FusedCrossAttention(CrossAttention):
    """The layer itself, with another `forward`."""

    def __init__(self, layer: CrossAttention):
        nn.Module.__init__(self)
        self.heads = layer.heads
        self.query = layer.query
        self.key_value = layer.key_value
        self.output = layer.output

    def forward(self, x: Tensor, memory: Memory, _fused: bool) -> Tensor:
        shape, x = x.shape, of_sources(x, memory)
        key, value = self.key_value(memory.states).split(x.size(-1), -1)
        attended = self.output(attend(self.query(x), key, value, memory.bias, self.heads))
        return attended if attended.shape == shape else attended.reshape(shape)


class FusedBidirectionalLSTM(nn.Module):
    """One operator per layer, for rows of different lengths, as packed sequences of torch."""

    def __init__(self, encoder: BidirectionalLSTM):
        super().__init__()
        lstm = encoder.lstm
        self.width = lstm.hidden_size
        self.layers = nn.ModuleList(
            nn.ParameterList(
                nn.Parameter(torch.stack([self._parts(lstm, names, layer, end) for end in ("", "_reverse")]))
                for names in (("weight_ih",), ("weight_hh",), ("bias_ih", "bias_hh"))
            )
            for layer in range(lstm.num_layers)
        )

    def _parts(self, lstm: nn.LSTM, names: tuple[str, ...], layer: int, end: str) -> Tensor:
        """Parameters of one direction, one after another. The operator has gates in the order i, o, f, g; torch i, f,
        g, o."""
        gates = [getattr(lstm, f"{name}_l{layer}{end}").detach().split(self.width) for name in names]
        return torch.cat([gate_rows[gate] for gate_rows in gates for gate in (0, 3, 1, 2)])

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, positions, _ = x.shape
        lengths, x = lengths.int(), x.transpose(0, 1)
        ends = (2, rows, self.width)
        for layer in self.layers:
            assert isinstance(layer, nn.ParameterList)
            x, hidden, cell = torch.onnx.ops.symbolic_multi_out(
                "LSTM",
                [x, *layer, lengths],
                {"direction": "bidirectional", "hidden_size": self.width},
                dtypes=[x.dtype] * 3,
                shapes=[(positions, *ends), ends, ends],
                version=14,
            )
            # (S, 2, B, D) -> (S, B, 2 * D).
            x = x.transpose(1, 2).flatten(2)
        return x.transpose(0, 1), hidden.transpose(0, 1).flatten(1), cell.transpose(0, 1).flatten(1)


FUSED = {
    SelfAttention: FusedSelfAttention,
    CrossAttention: FusedCrossAttention,
    BidirectionalLSTM: FusedBidirectionalLSTM,
}


def fused(networks: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """A copy of networks with layers of ONNX Runtime. The copies share the weights that the networks share."""
    copied = copy.deepcopy(networks)
    for network in copied.values():
        for module in list(network.modules()):
            for name, child in list(module.named_children()):
                if type(child) in FUSED:
                    setattr(module, name, FUSED[type(child)](child))
    return copied
