"""ONNX graphs with large products in 8 bits: weights are rounded by column, inputs by tensor while a graph runs."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from workflow_src.engines.onnx_graph import constants_of, drop_unused, products_of, readers_of, remove

# Matrices with a side below this stay in float32: latents, heads of distributions and of lengths.
NARROWEST = 32


def narrowed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with large products in 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Products of pooled states, such as a length head's, stay in float32 too.
    pooled = parted(model.graph)
    constants = constants_of(model.graph)
    large = {node.name for node in products_of(model.graph) if min(constants[node.input[1]].dims) >= NARROWEST}
    excluded = [node.name for node in model.graph.node if node.name not in large - pooled]
    log = logging.getLogger()
    level = log.level
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "narrow.onnx"
        # The quantiser recommends, on the root logger, a preparation that this graph does not need.
        log.setLevel(logging.ERROR)
        try:
            quantize_dynamic(
                model,
                path,
                op_types_to_quantize=["MatMul"],
                per_channel=True,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=excluded,
                extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
            )
        finally:
            log.setLevel(level)
        model = onnx.load(path)
    _drop_zeros(model.graph)
    narrow_attention(model.graph)
    return model


def narrowed_by_row(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with large products in 8 bits, whose inputs are rounded row by row: a row has the same product whatever
    stands beside it.

    Row x and column w are steps s times whole numbers from -127 to 127, with s = max|x| / 127.
    """
    graph = model.graph
    parted(graph)
    constants = constants_of(graph)
    large = {node.name: node for node in products_of(graph) if min(constants[node.input[1]].dims) >= NARROWEST}
    for name, value in (
        ("row_last", np.array([-1])),
        ("row_share", np.float32(1 / 127)),
        ("row_least", np.float32(1e-20)),
        # The product takes bytes above 0.
        ("row_zero", np.uint8(128)),
        ("row_shift", np.float32(128)),
    ):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    nodes: list[onnx.NodeProto] = []
    rounded: set[str] = set()
    for node in graph.node:
        if node.name not in large:
            nodes.append(node)
            continue
        value, matrix = node.input
        if value not in rounded:
            rounded.add(value)
            nodes += _rounded_rows(value)
        if f"{matrix}_whole" not in constants:
            weight = numpy_helper.to_array(constants[matrix])
            step = np.maximum(np.abs(weight).max(0) / 127, np.float32(1e-20))
            whole = np.round(weight / step).astype(np.int8)
            for name, content in ((f"{matrix}_whole", whole), (f"{matrix}_step", step)):
                constants[name] = numpy_helper.from_array(content, name)
                graph.initializer.append(constants[name])
        output = node.output[0]
        nodes += _chain(
            output,
            ("MatMulInteger", [f"{value}_bytes", f"{matrix}_whole", "row_zero"], {}),
            ("Cast", [], {"to": onnx.TensorProto.FLOAT}),
            ("Mul", [f"{value}_step"], {}),
            ("Mul", [f"{matrix}_step"], {}),
        )
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph)
    return model


def _rounded_rows(value: str) -> list[onnx.NodeProto]:
    """The steps of a value's rows, `VALUE_step`, and their whole numbers plus 128, `VALUE_bytes`."""
    return [
        *_chain(
            f"{value}_step",
            ("Abs", [value], {}),
            ("ReduceMax", ["row_last"], {"keepdims": 1}),
            ("Mul", ["row_share"], {}),
            ("Max", ["row_least"], {}),
        ),
        *_chain(
            f"{value}_bytes",
            ("Div", [value, f"{value}_step"], {}),
            ("Round", [], {}),
            ("Add", ["row_shift"], {}),
            ("Cast", [], {"to": onnx.TensorProto.UINT8}),
        ),
    ]


def _chain(output: str, *operators: tuple[str, list[str], dict[str, Any]]) -> list[onnx.NodeProto]:
    """Operators with names of inputs and attributes: the first input of all but the first is what came before."""
    nodes: list[onnx.NodeProto] = []
    for number, (kind, inputs, attributes) in enumerate(operators):
        before = [nodes[-1].output[0]] if nodes else []
        name = output if number == len(operators) - 1 else f"{output}_part{number}"
        nodes.append(helper.make_node(kind, [*before, *inputs], [name], f"{name}_{kind}", **attributes))
    return nodes


def parted(graph: onnx.GraphProto) -> set[str]:
    """Split every Gemm into a product and a sum; returns the names of the products.

    The quantiser also splits Gemm, but transposes a shared matrix twice, so one product gets the wrong one.
    """
    constants, nodes, products = constants_of(graph), [], set()
    for node in graph.node:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
        if node.op_type != "Gemm" or not plain or node.input[1] not in constants:
            nodes.append(node)
            continue
        value, matrix, *bias = node.input
        if attributes.get("transB", 0):
            turned = f"{matrix}_turned"
            if turned not in constants:
                content = np.ascontiguousarray(numpy_helper.to_array(constants[matrix]).T)
                constants[turned] = numpy_helper.from_array(content, turned)
                graph.initializer.append(constants[turned])
            matrix = turned
        product = f"{node.name}_product" if bias else node.output[0]
        nodes.append(helper.make_node("MatMul", [value, matrix], [product], f"{node.name}_product"))
        products.add(f"{node.name}_product")
        if bias:
            nodes.append(helper.make_node("Add", [product, bias[0]], [node.output[0]], f"{node.name}_sum"))
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph)
    return products


def _drop_zeros(graph: onnx.GraphProto) -> None:
    """Leave out zero points of weights, which are symmetric: with them the runtime takes slower products."""
    constants = constants_of(graph)
    for node in graph.node:
        if node.op_type == "MatMulInteger" and len(node.input) == 4 and node.input[3] in constants:
            if not numpy_helper.to_array(constants[node.input[3]]).any():
                del node.input[3]
    drop_unused(graph)


def narrow_attention(graph: onnx.GraphProto) -> None:
    """Join self-attention without a mask and the product for its queries, keys and values in one operator.

    As before, the product's input and weights are rounded, and the attention is not.
    """
    constants, readers = constants_of(graph), readers_of(graph)
    replaced: list[onnx.NodeProto] = []
    for value in graph.output:
        readers.setdefault(value.name, []).append(value)
    makers = {name: node for node in graph.node for name in node.output}
    for place, node in enumerate(graph.node):
        chain = _packed_product(node, makers, readers)
        if chain is None:
            continue
        _, add, _, scale, _, product = chain
        narrow, bias, step = makers[product.input[0]], _constant(add, constants), _constant(scale, constants)
        if bias is None or step is None or not _in_thirds(chain[0], bias, constants):
            continue
        zeros = f"{node.name}_zeros"
        graph.initializer.append(numpy_helper.from_array(np.zeros(constants[bias].dims[0], np.int8), zeros))
        inputs = [narrow.output[0], product.input[1], bias, narrow.output[1], step, "", narrow.output[2], zeros]
        heads = next(attribute.i for attribute in node.attribute if attribute.name == "num_heads")
        joined = helper.make_node(
            "QAttention", inputs, list(node.output), node.name, domain="com.microsoft", num_heads=heads
        )
        graph.node[place].CopyFrom(joined)
        replaced += chain
    remove(graph, replaced)
    drop_unused(graph)


def _in_thirds(split: onnx.NodeProto, bias: str, constants: dict[str, onnx.TensorProto]) -> bool:
    """Whether a split along the last axis gives queries, keys and values of one width."""
    attributes, width = {attribute.name: attribute.i for attribute in split.attribute}, constants[bias].dims
    if attributes.get("axis", 0) not in (-1, 2) or len(width) != 1 or width[0] % 3:
        return False
    if not split.input[1:]:
        return attributes.get("num_outputs") == 3
    return split.input[1] in constants and set(numpy_helper.to_array(constants[split.input[1]])) == {width[0] // 3}


def _constant(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> str | None:
    return next((name for name in node.input if name in constants), None)


def _packed_product(
    node: onnx.NodeProto, makers: dict[str, onnx.NodeProto], readers: dict[str, list[onnx.NodeProto]]
) -> tuple[onnx.NodeProto, ...] | None:
    """Operators that compute queries, keys and values of an attention from rounded numbers: their split, the sum with
    the bias, the product with a scale, the scale itself, the cast, the product of integers. None where they differ."""

    def before(reader: onnx.NodeProto, kind: str) -> onnx.NodeProto | None:
        """The only operator of a kind before another one, where nothing else reads its outputs."""
        nodes = {
            makers[name].output[0]: makers[name]
            for name in reader.input
            if name in makers and makers[name].op_type == kind
        }
        read_once = [m for m in nodes.values() if all(len(readers.get(name, ())) == 1 for name in m.output)]
        return read_once[0] if len(read_once) == len(nodes) == 1 else None

    chain: list[onnx.NodeProto] = []
    plain = [attribute.name for attribute in node.attribute] == ["num_heads"] and len(node.output) == 1
    if node.op_type != "MultiHeadAttention" or any(node.input[3:]) or not plain:
        return None
    for after, kind in ((-1, "Split"), (0, "Add"), (1, "Mul"), (2, "Mul"), (2, "Cast"), (4, "MatMulInteger")):
        previous = before(node if after < 0 else chain[after], kind)
        if previous is None:
            return None
        chain.append(previous)
    split, scale, product = chain[0], chain[3], chain[5]
    narrow = makers.get(product.input[0])
    if narrow is None or narrow.op_type != "DynamicQuantizeLinear" or list(split.output) != list(node.input[:3]):
        return None
    # Symmetric weights, and the scale of this very input.
    right = product.input[2:] == [narrow.output[2]] and narrow.output[1] in scale.input
    return tuple(chain) if right else None
