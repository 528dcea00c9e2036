"""Exporting a search with a program (`decoding/search.py`) as an ONNX graph: by PyTorch, then rewritten and rounded.

`torch.onnx.export` follows the operators of its `forward`. Rewrites make graphs of single sentences faster: products of
one input become one product, equal products are computed once, and a last maximum is left to NumPy.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from workflow_src.decoding.ranking import EXAMPLES, Function
from workflow_src.decoding.search import SearchModule, open_search
from workflow_src.engines.onnx_graph import constants_of, drop_unused, products_of, readers_of, remove
from workflow_src.engines.onnx_layers import fused
from workflow_src.engines.onnx_narrow import narrowed, narrowed_by_row
from workflow_src.spec import SearchSettings

OPSET = 20
# The first file format with this operator set.
FORMAT = 9


class _Whole(nn.Module):
    """A search with the networks that it computes with, so that an exporter sees their weights as parameters."""

    def __init__(self, search: SearchModule, networks: Mapping[str, nn.Module]):
        super().__init__()
        self.search, self.networks = search, nn.ModuleDict(networks)

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        return self.search(source)


def export(networks: Mapping[str, nn.Module], settings: SearchSettings, scored: bool, alone: bool, int8: bool) -> bytes:
    """The search with these networks (by role, float32, on a CPU) as a serialised graph.

    Input: source (B, S) int64. Outputs: those that the search names. `alone` graphs are for one sentence without
    padding; in place of symbols that are an argmax, they output logits (1, T, V). `int8` computes large products in 8
    bits.
    """
    copies = fused(dict(networks))
    search = open_search(copies, settings, scored)
    example = EXAMPLES[:1] if alone else EXAMPLES
    model = _traced(_Whole(search, copies), (example,), {}, search.outputs)
    if alone and search.rows == 1:
        leave_maximum(model.graph)
    return _finished(model, narrowed if int8 else None)


def export_function(network: nn.Module, program: Callable[[nn.Module], Function], alone: bool, int8: bool) -> bytes:
    """A function of a network (float32, on a CPU) that a search calls, as a serialised graph.

    Inputs: source (B, S) int64 and those that the function names.
    """
    function = program(fused({"network": network})["network"])
    examples = function.alone if alone else function.together
    model = _traced(function.module, examples, function.inputs, function.outputs)
    narrow = narrowed_by_row if function.by_row else narrowed
    return _finished(model, narrow if int8 else None)


def _traced(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """The graph of a module with shared and joined products; `inputs` are the axes of inputs after the source.

    Axes of examples that have one element stay fixed: those of a sentence that is alone.
    """
    dynamic, varying = torch.export.Dim.DYNAMIC, {"source": (0, 1), **inputs}
    sizes = [
        {axis: dynamic for axis in axes if example.size(axis) > 1}
        for example, axes in zip(examples, varying.values(), strict=True)
    ]
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            module.eval(),
            examples,
            dynamo=True,
            dynamic_shapes=tuple(sizes),
            opset_version=OPSET,
            verbose=False,
            input_names=list(varying),
            output_names=list(outputs),
        )
    assert program is not None, "the exporter returns a program unless it writes a file"
    model = program.model_proto
    model.ir_version = FORMAT
    # Shapes that rewrites make wrong; the runtime finds them by itself.
    del model.graph.value_info[:]
    turn_constants(model.graph)
    join_products(model.graph)
    return model


def _finished(model: onnx.ModelProto, narrow: Callable[[onnx.ModelProto], onnx.ModelProto] | None) -> bytes:
    drop_unused(model.graph)
    return (narrow(model) if narrow else model).SerializeToString()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on packages that are not installed, on its own future, and on unused values."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def turn_constants(graph: onnx.GraphProto) -> None:
    """Transpose constant matrices beforehand, such as an embedding that is the output projection too."""
    constants = constants_of(graph)
    turned = [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in constants]
    for node in turned:
        order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
        content = np.ascontiguousarray(np.transpose(numpy_helper.to_array(constants[node.input[0]]), order))
        graph.initializer.append(numpy_helper.from_array(content, node.output[0]))
    remove(graph, turned)


def join_products(graph: onnx.GraphProto) -> None:
    """Join products (with biases) of one value in one product and a split: keys and values of all layers."""
    constants, readers = constants_of(graph), readers_of(graph)
    groups: dict[str, list[tuple[onnx.NodeProto, onnx.NodeProto]]] = {}
    for node in products_of(graph):
        after = readers.get(node.output[0], [])
        if len(after) == 1 and after[0].op_type == "Add":
            addends = [name for name in after[0].input if name != node.output[0]]
            if addends and addends[0] in constants and len(constants[addends[0]].dims) == 1:
                groups.setdefault(node.input[0], []).append((node, after[0]))
    for value, pairs in groups.items():
        if len(pairs) > 1:
            _join(graph, value, pairs, constants)


def _join(
    graph: onnx.GraphProto,
    value: str,
    pairs: list[tuple[onnx.NodeProto, onnx.NodeProto]],
    constants: dict[str, onnx.TensorProto],
) -> None:
    array = lambda name: numpy_helper.to_array(constants[name])  # noqa: E731
    weights = [array(product.input[1]) for product, _ in pairs]
    biases = [array(next(n for n in add.input if n != product.output[0])) for product, add in pairs]
    name = f"{value}_joined"
    widths = [weight.shape[1] for weight in weights]
    for suffix, content in (
        ("weight", np.concatenate(weights, 1)),
        ("bias", np.concatenate(biases)),
        ("widths", np.array(widths, dtype=np.int64)),
    ):
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(content), f"{name}_{suffix}"))
    joined = [
        helper.make_node("MatMul", [value, f"{name}_weight"], [f"{name}_product"], f"{name}_product"),
        helper.make_node("Add", [f"{name}_product", f"{name}_bias"], [f"{name}_sum"], f"{name}_sum"),
        helper.make_node(
            "Split", [f"{name}_sum", f"{name}_widths"], [add.output[0] for _, add in pairs], f"{name}_split", axis=-1
        ),
    ]
    replaced = {node.output[0] for pair in pairs for node in pair}
    place = next(i for i, node in enumerate(graph.node) if node.output[0] in replaced)
    nodes = list(graph.node)
    remaining = [node for node in nodes[:place]] + joined + [n for n in nodes[place:] if n.output[0] not in replaced]
    del graph.node[:]
    graph.node.extend(remaining)


def leave_maximum(graph: onnx.GraphProto) -> None:
    """Output logits in place of the symbols that are their argmax: NumPy is faster for a single sentence.

    Padding of symbols, `torch.where(mask, symbols, PAD)`, is left out: every position of a single sentence is real.
    """
    symbols, makers = graph.output[0], {name: node for node in graph.node for name in node.output}
    constants = constants_of(graph)
    name = symbols.name
    while (node := makers.get(name)) is not None:
        if node.op_type == "Identity":
            name = node.input[0]
        # In place of a constant there may be symbols of an earlier pass.
        elif node.op_type == "Where" and node.input[2] in constants:
            name = node.input[1]
        else:
            break
    if node is None or node.op_type != "ArgMax":
        return
    settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if settings.get("axis", 0) not in (-1, 2) or settings.get("keepdims", 1):
        return
    # What only the maximum needed is dropped with it.
    graph.output[0].CopyFrom(helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, [1, "T", "V"]))
