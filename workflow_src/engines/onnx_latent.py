"""The whole of latent inference as one ONNX graph: source ids in, target ids out (`decoding/latent.py` in PyTorch).

Encoder, length, prior mean, a loop of refinement steps, decoder and argmax lie in one graph, so that a sentence costs
one call. The number of steps is an input. What depends on positions alone (the prior's first product) is a constant.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx import TensorProto

from workflow_src.engines.onnx_graph import Array, Graph, Layers, Positions, Weights, integers
from workflow_src.families.lvm import LvmConfig
from workflow_src.nn.settings import RefinerConfig
from workflow_src.types import EOS

SEARCHES = ("prior-mean", "delta", "score")
# Far below every logit, for symbols that are no words.
NEVER = -1e9


@dataclasses.dataclass(frozen=True)
class Part:
    """A network's sizes and float32 weights by name, and its position codes (positions, D)."""

    config: LvmConfig | RefinerConfig
    weights: Weights
    positions: Array


def build(
    lvm: Part,
    score: Part | None,
    search: str,
    masked: bool,
    scored: bool,
    int8: bool,
    steps: int | None = None,
    quantile: bool = False,
    lengthening: bool = False,
) -> bytes:
    """A serialised graph for `search`. Inputs: source (B, S) int64, steps () int64 and, for score, step_size () float.

    Outputs: positions (B,) int64 that count in a sentence, tokens (B, T) int64 and, if `scored`, scores (B,): the
    mean log p(y_t|z,x). Without `masked` B is 1, nothing is padding, and logits (B, T, V) of words come instead of
    tokens. `int8` computes the products of all layers and the output projection in 8 bits; latents, heads and the
    length stay float32. With `steps` they are written one after another and are no input. With `quantile`, lengths are
    that quantile of the predicted ones, and length_quantile () float is an input too; with `lengthening` that number ()
    double is one.
    """
    return _Builder(lvm, score, search, masked, scored, int8, quantile, lengthening).build(steps)


class _Builder:
    def __init__(
        self,
        lvm: Part,
        score: Part | None,
        search: str,
        masked: bool,
        scored: bool,
        int8: bool,
        quantile: bool,
        lengthening: bool,
    ):
        self.lvm, self.score, self.search, self.masked, self.scored = lvm, score, search, masked, scored
        self.quantile, self.lengthening = quantile, lengthening
        self.weights, self.config = lvm.weights, lvm.config
        self.target_embedding = self.weights.get("target_embedding.weight", self.weights["source_embedding.weight"])
        self.graph = Graph()
        make = lambda config: Layers(self.graph, config.dim, config.heads, config.norm == "pre", int8)  # noqa: E731
        self.layers = make(lvm.config)
        self.score_layers = make(score.config) if score else None
        self.tables: dict[int, Array] = {}
        self.special = np.zeros(len(self.target_embedding), np.float32)
        self.special[: EOS if lvm.config.end_symbol else EOS + 1] = NEVER

    def build(self, steps: int | None) -> bytes:
        graph = self.graph
        states, source = self._encode()
        positions = self._lengths(states, source)
        if self.config.end_symbol:
            positions = graph.op("Add", positions, np.array(1))
        self.own = self._target_positions(positions)
        self.source = source
        self._attach(states)
        z = self._prior()
        if steps is None:
            body = Graph(graph)
            inside = graph.name()
            z = graph.repeat("steps", z, body, inside, self._step(body, inside))
        for _ in range(steps or 0):
            z = self._step(graph, z)
        outputs = [("positions", TensorProto.INT64, ["B"])]
        logits = self._logits(self.layers, z)
        if self.scored:
            words = graph.op("Add", logits, self.special)
            graph.call(self._scores(logits, words, positions), "scores")
            outputs.append(("scores", TensorProto.FLOAT, ["B"]))
            logits = words
        if self.masked:
            graph.call(graph.op("ArgMax", logits, axis=-1, keepdims=0), "tokens")
            outputs.append(("tokens", TensorProto.INT64, ["B", "T"]))
        else:
            # Of a single sentence, NumPy finds the maxima faster than the runtime does.
            graph.call(logits, "logits")
            outputs.append(("logits", TensorProto.FLOAT, ["B", "T", "V"]))
        graph.call(positions, "positions")
        inputs = [("source", TensorProto.INT64, ["B", "S"])]
        if steps is None:
            inputs.append(("steps", TensorProto.INT64, []))
        if self.quantile:
            inputs.append(("length_quantile", TensorProto.FLOAT, []))
        if self.lengthening:
            inputs.append(("lengthening", TensorProto.DOUBLE, []))
        if self.search == "score" and steps != 0:
            inputs.append(("step_size", TensorProto.FLOAT, []))
        return graph.model(inputs, outputs)

    def _embed(self, graph: Graph, embedding: Array, ids: str, length: str) -> str:
        """Embeddings times sqrt(D) plus positions; the scaled table is a constant of its own."""
        table = self.tables.setdefault(id(embedding), embedding * np.float32(self.config.dim**0.5))
        return graph.op("Add", graph.op("Gather", table, ids), self._codes(graph, self.lvm.positions, length))

    def _codes(self, graph: Graph, table: Array, length: str) -> str:
        """The first rows of a table (positions, N), as (1, T, N)."""
        wide = self.tables.setdefault(id(table), table[None])
        return graph.op("Slice", wide, integers(0), length, integers(1))

    def _encode(self) -> tuple[str, Positions]:
        graph = self.graph
        mask = ""
        if self.masked:
            mask = graph.op("Cast", graph.op("Greater", "source", integers(0)), to=TensorProto.INT32)
        source = Positions(graph.op("Shape", "source", start=1, end=2), mask)
        x = self._embed(graph, self.weights["source_embedding.weight"], "source", source.length)
        return self.layers.stack(x, self.weights, "encoder", self.config.encoder_layers, source), source

    def _lengths(self, states: str, source: Positions) -> str:
        """Target lengths (B,): `LengthHead.predict`."""
        graph, weights = self.graph, self.weights
        if self.masked:
            count = graph.op("ReduceSum", graph.op("Cast", source.mask, to=TensorProto.INT64), integers(1), keepdims=0)
        else:
            count = source.length
        pooled = self._pooled(states, source, count)
        hidden = graph.op("Add", pooled, graph.op("Gather", weights["length.source_length"], count))
        hidden = graph.op("Relu", self.layers.linear(hidden, weights, "length.inner", int8=False))
        scores = self.layers.linear(hidden, weights, "length.outer", int8=False)
        if self.quantile:
            below = graph.op("CumSum", graph.op("Softmax", scores, axis=-1), np.array(1))
            below = graph.op("Cast", graph.op("Less", below, "length_quantile"), to=TensorProto.INT64)
            most = np.array(2 * self.config.max_length_difference)
            best = graph.op("Clip", graph.op("ReduceSum", below, integers(1), keepdims=0), "", most)
        else:
            best = graph.op("ArgMax", scores, axis=-1, keepdims=0)
        # Classes are differences from -limit on, and the source's end symbol does not count.
        shift = integers(-self.config.max_length_difference - 1)
        length = graph.op("Add", best, graph.op("Add", count, shift))
        if self.lengthening:
            words = graph.op("Cast", graph.op("Sub", count, integers(1)), to=TensorProto.DOUBLE)
            more = graph.op("Round", graph.op("Mul", words, "lengthening"))
            most = self.config.max_positions + self.config.max_length_difference
            more = graph.op("Min", more, np.array(most, np.float64))
            length = graph.op("Add", length, graph.op("Cast", more, to=TensorProto.INT64))
        longest = self.config.max_positions - int(self.config.end_symbol)
        return graph.op("Clip", length, np.array(1), np.array(longest))

    def _pooled(self, states: str, source: Positions, count: str) -> str:
        """Source states (B, S, D) pooled over positions, (B, D)."""
        graph = self.graph
        if self.config.length_pooling == "attention":
            scores = self.layers.linear(states, self.weights, "length.attention", int8=False)
            if self.masked:
                real = graph.op("Unsqueeze", graph.op("Cast", source.mask, to=TensorProto.BOOL), integers(2))
                scores = graph.op("Where", real, scores, np.array(NEVER, np.float32))
            weighted = graph.op("Mul", states, graph.op("Softmax", scores, axis=1))
            return graph.op("ReduceSum", weighted, integers(1), keepdims=0)
        if not self.masked:
            return graph.op("ReduceMean", states, axes=[1], keepdims=0)
        real = graph.op("Unsqueeze", graph.op("Cast", source.mask, to=TensorProto.FLOAT), integers(2))
        total = graph.op("ReduceSum", graph.op("Mul", states, real), integers(1), keepdims=0)
        number = graph.op("Unsqueeze", graph.op("Cast", count, to=TensorProto.FLOAT), integers(1))
        return graph.op("Div", total, number)

    def _target_positions(self, lengths: str) -> Positions:
        if not self.masked:
            return Positions(lengths)
        graph = self.graph
        longest = graph.op("ReduceMax", lengths, axes=[0], keepdims=1)
        numbers = graph.op("Slice", np.arange(self.config.max_positions), integers(0), longest)
        real = graph.op(
            "Less", graph.op("Unsqueeze", numbers, integers(0)), graph.op("Unsqueeze", lengths, integers(1))
        )
        return Positions(longest, graph.op("Cast", real, to=TensorProto.INT32))

    def _attach(self, states: str) -> None:
        """Keys and values of the source for all stacks over the target."""
        layers = self.config.layers
        stacks = [(self.weights, "prior_stack", layers), (self.weights, "decoder_stack", layers)]
        if self.search == "delta":
            stacks.append((self.weights, "posterior_stack", layers))
        if self.search == "score":
            stacks.append((self.score.weights, "stack", self.score.config.layers))
        found = self.layers.cross_keys_values(states, stacks)
        self.memory = dict(zip((name for _, name, _ in stacks), found, strict=True))

    def _decoder(self, layers: Layers, x: str, part: Part, name: str, first: str | None = None) -> str:
        number = part.config.layers
        skip = name == "decoder_stack" and self.config.decoder_skip
        return layers.stack(x, part.weights, name, number, self.own, self.memory[name], self.source, first, skip)

    def _prior(self) -> str:
        """The prior's mean (B, T, Z). Its input is positions alone, so that its first product is a table."""
        graph, weights, name = self.graph, self.weights, "prior_stack.layers.0.self_attention.query_key_value"
        table = self.lvm.positions
        if self.config.norm == "pre":
            centred = table - table.mean(-1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
            norm = "prior_stack.layers.0.self_norm"
            table = scaled * weights[f"{norm}.weight"] + weights[f"{norm}.bias"]
        self.first = table @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        codes = self._codes(graph, self.lvm.positions, self.own.length)
        first = self._codes(graph, self.first, self.own.length)
        if self.masked:
            batch = graph.op("Shape", "source", start=0, end=1)
            ones = graph.op("Concat", batch, integers(1, 1), axis=0)
            codes, first = graph.op("Expand", codes, ones), graph.op("Expand", first, ones)
        self.codes = codes
        return self._mean(self.layers, self._decoder(self.layers, codes, self.lvm, "prior_stack", first), "prior")

    def _mean(self, layers: Layers, hidden: str, name: str) -> str:
        """The first half of a Gaussian head; deviations are not needed."""
        width = self.config.latent_dim
        weight, bias = self.weights[f"{name}_head.linear.weight"], self.weights[f"{name}_head.linear.bias"]
        return layers.product(hidden, weight[:width].T, bias[:width], int8=False)

    def _logits(self, layers: Layers, z: str) -> str:
        """Logits (B, T, V); those of special symbols are suppressed, unless scores need them first."""
        x = layers.graph.op("Add", layers.linear(z, self.weights, "latent_projection", int8=False), self.codes)
        hidden = self._decoder(layers, x, self.lvm, "decoder_stack")
        bias = self.weights["output_bias"]
        if not (self.scored and layers is self.layers):
            bias = bias + self.special
        return layers.product(hidden, self.target_embedding.T, bias)

    def _step(self, body: Graph, z: str) -> str:
        if self.search == "delta":
            layers = self.layers.within(body)
            tokens = body.op("ArgMax", self._logits(layers, z), axis=-1, keepdims=0)
            x = self._embed(body, self.target_embedding, tokens, self.own.length)
            return self._mean(layers, self._decoder(layers, x, self.lvm, "posterior_stack"), "posterior")
        layers, weights = self.score_layers.within(body), self.score.weights
        x = layers.linear(z, weights, "latent_projection", int8=False)
        if self.score.config.positions:
            # Its own codes: a score network may be of another width than the model.
            x = body.op("Add", x, self._codes(body, self.score.positions, self.own.length))
        direction = layers.linear(self._decoder(layers, x, self.score, "stack"), weights, "head", int8=False)
        return body.op("Add", z, body.op("Mul", direction, "step_size"))

    def _scores(self, logits: str, words: str, positions: str) -> str:
        """Mean log-probability (B,) of the best words; special symbols keep their share of the probability."""
        graph = self.graph
        normaliser = graph.op("ReduceLogSumExp", logits, axes=[2], keepdims=0)
        best = graph.op("ReduceMax", words, axes=[2], keepdims=0)
        each = graph.op("Sub", best, normaliser)
        if self.masked:
            each = graph.op("Mul", each, graph.op("Cast", self.own.mask, to=TensorProto.FLOAT))
        total = graph.op("ReduceSum", each, integers(1), keepdims=0)
        return graph.op("Div", total, graph.op("Cast", positions, to=TensorProto.FLOAT))
