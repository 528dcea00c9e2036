"""Helpers for rewriting ONNX graphs: constants, products, readers of a value, and removal of nodes and constants."""

from __future__ import annotations

import onnx


def constants_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in graph.initializer}


def products_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Products of a value with a constant matrix."""
    constants = constants_of(graph)
    return [
        node
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in constants and len(constants[node.input[1]].dims) == 2
    ]


def readers_of(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def remove(graph: onnx.GraphProto, removed: list[onnx.NodeProto]) -> None:
    outputs = {node.output[0] for node in removed}
    remaining = [node for node in graph.node if not (node.output and node.output[0] in outputs)]
    del graph.node[:]
    graph.node.extend(remaining)


def drop_unused(graph: onnx.GraphProto) -> None:
    read_names = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    initializers = [tensor for tensor in graph.initializer if tensor.name in read_names]
    del graph.initializer[:]
    graph.initializer.extend(initializers)
