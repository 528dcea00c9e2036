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
    """Remove nodes and constants that no output depends on, which the runtime would compute."""
    needed = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    del graph.initializer[:]
    graph.initializer.extend(initializers)
