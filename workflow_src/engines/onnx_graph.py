"""ONNX graphs of the project's Transformer stacks, written node by node from weights: what `onnxruntime.py` runs.

Written rather than traced, because single sentences are short: what counts is how many operators a sentence passes,
that keys and values of all layers are one product, and that a batch of one has no masks. Attention over padded
positions and 8-bit products are operators of ONNX Runtime (domain com.microsoft).

Names of values stand for tensors of the shapes in `types.py`; all linear layers see (B, T, D).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
# The first file format with this operator set; newer ones only shut older runtimes out.
FORMAT = 8
RUNTIME = "com.microsoft"
Array = np.ndarray
Weights = dict[str, Array]


def integers(*values: int) -> Array:
    """A shape, axes or ends: constants of operators are tensors."""
    return np.array(values, dtype=np.int64)


def narrow(weight: Array) -> tuple[Array, Array]:
    """An (in, out) matrix as int8 and a scale for each output, so that matrix = int8 * scale up to rounding."""
    scale = np.abs(weight).max(0) / 127
    scale[scale == 0] = 1
    return np.round(weight / scale).astype(np.int8), scale.astype(np.float32)


def _place(array: Array) -> tuple:
    """Tells arrays apart by the memory they show: two views of one matrix are the same constant."""
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)


class Graph:
    """Nodes under construction. `op` adds one and gives the names of its outputs; arrays become constants.

    A body (of a loop) sees the values and constants of the graph around it.
    """

    def __init__(self, around: Graph | None = None):
        self.root: Graph = around.root if around else self
        self.nodes: list[onnx.NodeProto] = []
        self._count = 0
        self._constants: dict[Any, tuple[str, Array]] = {}
        self._narrow: dict[Any, tuple[Array, Array, Array]] = {}

    def name(self) -> str:
        self.root._count += 1
        return f"value{self.root._count}"

    def constant(self, array: Array) -> str:
        """Equal small arrays are one constant, and so is a large one that is given again."""
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else _place(array)
        known = self.root._constants
        if key not in known:
            # The array is kept, so that no other can take its place in memory.
            known[key] = (f"constant{len(known)}", array)
        return known[key][0]

    def narrow(self, weight: Array) -> tuple[Array, Array]:
        """`narrow`, once for a matrix however often it is used."""
        known = self.root._narrow
        if _place(weight) not in known:
            known[_place(weight)] = (*narrow(weight), weight)
        return known[_place(weight)][:2]

    def ops(self, kind: str, *inputs: str | Array, count: int, domain: str = "", **attributes: Any) -> list[str]:
        outputs = [self.name() for _ in range(count)]
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(helper.make_node(kind, names, outputs, domain=domain, **attributes))
        return outputs

    def op(self, kind: str, *inputs: str | Array, domain: str = "", **attributes: Any) -> str:
        return self.ops(kind, *inputs, count=1, domain=domain, **attributes)[0]

    def call(self, value: str, name: str) -> None:
        """Give a value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def repeat(self, times: str, start: str, body: Graph, inside: str, result: str) -> str:
        """`start` after `times` (int64 scalar) runs of `body`, which makes value `result` of value `inside`."""
        going, round_number = self.name(), self.name()
        still = body.op("Identity", going)
        inputs = [(round_number, TensorProto.INT64, []), (going, TensorProto.BOOL, []), (inside, TensorProto.FLOAT)]
        outputs = [(still, TensorProto.BOOL, []), (result, TensorProto.FLOAT)]
        made = helper.make_graph(body.nodes, "body", _described(inputs), _described(outputs))
        return self.op("Loop", times, "", start, body=made)

    def model(self, inputs: list[tuple], outputs: list[tuple]) -> bytes:
        """The finished model, serialised; `inputs` and `outputs` are (name, type, shape)."""
        constants = [
            numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in self._constants.values()
        ]
        graph = helper.make_graph(self.nodes, "continuum", _described(inputs), _described(outputs), constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT).SerializeToString()


def _described(values: list[tuple]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, *shape or [None]) for name, kind, *shape in values]


@dataclasses.dataclass(frozen=True)
class Positions:
    """One side of a batch: its number of positions (a value of shape (1,)) and, where sentences are padded, their mask.

    `mask` is int32 (B, T), 1 at real positions; "" without padding.
    """

    length: str
    mask: str = ""


class Layers:
    """The layers of `nn/layers.py` on a graph. `int8` computes the large products in 8 bits.

    Then weights are rounded to 255 steps a column, and inputs of products to 256 steps a tensor while it runs.
    """

    def __init__(self, graph: Graph, dim: int, heads: int, pre: bool, int8: bool):
        self.graph, self.dim, self.heads, self.pre, self.int8 = graph, dim, heads, pre, int8

    def within(self, graph: Graph) -> Layers:
        """The same layers in the body of a loop."""
        return Layers(graph, self.dim, self.heads, self.pre, self.int8)

    def product(self, x: str, weight: Array, bias: Array, int8: bool | None = None) -> str:
        """x @ weight + bias for a weight (in, out)."""
        if self.int8 if int8 is None else int8:
            rounded, scale = self.graph.narrow(weight)
            return self.graph.op("DynamicQuantizeMatMul", x, rounded, scale, "", bias, domain=RUNTIME)
        return self.graph.op("Add", self.graph.op("MatMul", x, weight), bias)

    def linear(self, x: str, weights: Weights, name: str, int8: bool | None = None) -> str:
        return self.product(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"], int8)

    def norm(self, x: str, weights: Weights, name: str) -> str:
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return self.graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    def attend(self, query: str, key: str, value: str, seen: Positions) -> str:
        """Multi-head attention of (B, T, D) over keys and values (B, S, D) at positions `seen`."""
        masked = ("", seen.mask) if seen.mask else ()
        return self.graph.op("MultiHeadAttention", query, key, value, *masked, domain=RUNTIME, num_heads=self.heads)

    def parts(self, packed: str, count: int) -> list[str]:
        """(B, T, count * D) in parts of width D."""
        return self.graph.ops("Split", packed, integers(*[self.dim] * count), count=count, axis=-1)

    def cross_keys_values(self, states: str, stacks: list[tuple[Weights, str, int]]) -> list[list[tuple[str, str]]]:
        """Keys and values (B, S, D) of every layer of every stack (weights, name, layers), in one product.

        They depend on the source alone, so no refinement step computes them again.
        """
        heads = [
            (weights, f"{name}.layers.{layer}.cross_attention.key_value")
            for weights, name, layers in stacks
            for layer in range(layers)
        ]
        weight = np.concatenate([weights[f"{name}.weight"] for weights, name in heads]).T
        bias = np.concatenate([weights[f"{name}.bias"] for weights, name in heads])
        parts = iter(self.parts(self.product(states, weight, bias), 2 * len(heads)))
        return [[(next(parts), next(parts)) for _ in range(layers)] for _, _, layers in stacks]

    def stack(
        self,
        x: str,
        weights: Weights,
        name: str,
        layers: int,
        own: Positions,
        memory: list[tuple[str, str]] | None = None,
        source: Positions | None = None,
        first: str | None = None,
        skip: bool = False,
    ) -> str:
        """A stack over (B, T, D); `memory` holds keys and values of the source for every layer of a decoder's stack.

        `first` replaces the first layer's packed queries, keys and values, where they are known beforehand. With `skip`
        the stack's input is added after each layer, the sum divided by sqrt(2).
        """
        begin = x
        for layer in range(layers):
            at = f"{name}.layers.{layer}"
            known = first if layer == 0 else None
            attend = functools.partial(self._self_attention, weights=weights, at=at, own=own, known=known)
            x = self._add(x, weights, f"{at}.self_norm", attend)
            if memory is not None:
                attend = functools.partial(
                    self._cross_attention, weights=weights, at=at, memory=memory[layer], source=source
                )
                x = self._add(x, weights, f"{at}.cross_norm", attend)
            x = self._add(x, weights, f"{at}.feed_norm", functools.partial(self._feed_forward, weights=weights, at=at))
            if skip:
                x = self.graph.op("Mul", self.graph.op("Add", begin, x), np.array(math.sqrt(0.5), np.float32))
        return self.norm(x, weights, f"{name}.norm") if self.pre else x

    def _add(self, x: str, weights: Weights, norm: str, part: Callable[[str], str]) -> str:
        # One operator for sum and norm exists (SkipLayerNormalization); on CPUs it is slower than the two.
        if self.pre:
            return self.graph.op("Add", x, part(self.norm(x, weights, norm)))
        return self.norm(self.graph.op("Add", x, part(x)), weights, norm)

    def _self_attention(self, h: str, weights: Weights, at: str, own: Positions, known: str | None) -> str:
        name = f"{at}.self_attention.query_key_value"
        if self.int8 and not known:
            found = self._narrow_attention(h, weights[f"{name}.weight"].T, weights[f"{name}.bias"], own)
        else:
            found = self.attend(*self.parts(known or self.linear(h, weights, name), 3), own)
        return self.linear(found, weights, f"{at}.self_attention.output")

    def _narrow_attention(self, h: str, weight: Array, bias: Array, own: Positions) -> str:
        """Product for queries, keys and values in 8 bits and attention in float32, one operator."""
        rounded, scale = self.graph.narrow(weight)
        narrow, step, zero = self.graph.ops("DynamicQuantizeLinear", h, count=3)
        zeros = np.zeros(len(bias), np.int8)
        given = (narrow, rounded, bias, step, scale, own.mask, zero, zeros)
        return self.graph.op("QAttention", *given, domain=RUNTIME, num_heads=self.heads)

    def _cross_attention(self, h: str, weights: Weights, at: str, memory: tuple[str, str], source: Positions) -> str:
        query = self.linear(h, weights, f"{at}.cross_attention.query")
        return self.linear(self.attend(query, *memory, source), weights, f"{at}.cross_attention.output")

    def _feed_forward(self, h: str, weights: Weights, at: str) -> str:
        inner = self.graph.op("Relu", self.linear(h, weights, f"{at}.feed_forward.inner"))
        return self.linear(inner, weights, f"{at}.feed_forward.outer")
