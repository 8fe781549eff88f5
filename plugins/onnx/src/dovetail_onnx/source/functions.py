"""Checks of local functions: valid bodies, no recursion, and limits on the size of the inlined model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_onnx.signatures import find_signature
from dovetail_onnx.source.graphs import GraphRules
from dovetail_onnx.source.problems import imports_of
from dovetail_onnx.topological_order import bodies_of
from dovetail_onnx.wire import EXPANDED_BYTES, EXPANDED_NODES, GRAPH_DEPTH

if TYPE_CHECKING:
    import onnx

    from dovetail_onnx.external import TensorLoader
    from dovetail_onnx.source.problems import Problems


Key = tuple[str, str, str]
"""A function's domain, name and overload."""


class Functions(dict[Key, "onnx.FunctionProto"]):
    """Local functions by key.

    Attributes:
        needed: Indices of the inputs that a call must not omit, because an operator in the body requires them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.needed: dict[Key, frozenset[int]] = {}


_HINT = "models nest functions a few levels deep; this file is damaged or made to do harm"


def check_functions(proto: onnx.ModelProto, loader: TensorLoader, problems: Problems) -> Functions:
    """Check the body of every local function, and the size of the model with all calls inlined.

    Raises:
        DovetailError: Functions are recursive, or the inlined model exceeds the limits.
    """
    functions = Functions()
    for function in proto.functions:
        key = _key(function.domain, function.name, function.overload)
        if key in functions:
            problems.add(f"two functions are called '{function.name}' in domain '{function.domain}'")
        functions[key] = function
    if functions:
        _check_expansion(proto, functions, loader.name)
    for function in functions.values():
        _check_body(function, functions, loader, problems)
    return functions


def _check_body(function: onnx.FunctionProto, functions: Functions, loader: TensorLoader, problems: Problems) -> None:
    label, given = f"function '{function.name}'", set(function.input)
    if len(given) < len(function.input):
        problems.add(f"{label} has two inputs of one name")
    rules = GraphRules(imports_of(function.opset_import), functions, loader, problems, label)
    rules.attributes(function.attribute_proto, label, 0)
    defined = rules.nodes(function.node, given, 0)
    for name in function.output:
        if name not in defined:
            problems.add(f"output '{name}' of {label} is not defined")


@dataclass
class _Extent:
    """The size of an inlined call: nodes, bytes, and nesting of bodies."""

    nodes: int
    bytes: int
    depth: int


def _check_expansion(proto: onnx.ModelProto, functions: Functions, name: str) -> None:
    extents: dict[Key, _Extent] = {}
    calls = {key: list(_calls(function.node, functions)) for key, function in functions.items()}
    for root in functions:
        # Iterative depth-first search: a chain of calls may be longer than Python's stack.
        stack, path = [(root, iter(calls[root]))], {root}
        while stack:
            key, left = stack[-1]
            callee = next((callee for callee, _ in left if callee is not None and callee not in extents), None)
            if callee is None:
                extents[key] = _sum(calls[key], functions[key].ByteSize(), extents)
                functions.needed[key] = _needed(functions[key], functions)
                _judge(f"function '{functions[key].name}'", extents[key], name)
                path.discard(key)
                stack.pop()
            elif callee in path:
                raise DovetailError(f"{name}: function '{functions[callee].name}' calls itself", _HINT)
            else:
                path.add(callee)
                stack.append((callee, iter(calls[callee])))
    _judge("the model", _sum(list(_calls(proto.graph.node, functions)), proto.graph.ByteSize(), extents), name)


def _judge(what: str, extent: _Extent, name: str) -> None:
    if extent.nodes > EXPANDED_NODES or extent.bytes > EXPANDED_BYTES:
        size = f"{extent.nodes} nodes" if extent.nodes > EXPANDED_NODES else f"{extent.bytes >> 20} MiB"
        limit = f"{EXPANDED_NODES} nodes or {EXPANDED_BYTES >> 20} MiB"
        raise DovetailError(f"{name}: {what} expands to {size} when its calls are inlined; the limit is {limit}", _HINT)
    if extent.depth > GRAPH_DEPTH:
        raise DovetailError(f"{name}: {what} nests bodies deeper than {GRAPH_DEPTH} levels when inlined", _HINT)


def _sum(calls: list[tuple[Key | None, int]], size: int, extents: Mapping) -> _Extent:
    total = _Extent(0, size, 0)
    for callee, depth in calls:
        called = extents[callee] if callee is not None else _Extent(1, 0, 0)
        total.nodes += called.nodes
        total.bytes += called.bytes
        total.depth = max(total.depth, depth + called.depth)
    return total


def _calls(nodes, functions: Functions) -> Iterator[tuple[Key | None, int]]:
    """Yield, for every node here and in bodies, the function that it calls (or None) and its nesting depth."""
    stack = [(nodes, 0)]
    while stack:
        nodes, depth = stack.pop()
        for node in nodes:
            key = _key(node.domain, node.op_type, node.overload)
            yield (key if key in functions else None), depth
            stack.extend((body.node, depth + 1) for body in bodies_of(node))


def _needed(function: onnx.FunctionProto, functions: Functions) -> frozenset[int]:
    """Return the indices of inputs that some operator of the body requires; callees are known already."""
    positions, opsets = {name: index for index, name in enumerate(function.input)}, imports_of(function.opset_import)
    needed, stack = set(function.output), [function.node]
    while stack:
        for node in stack.pop():
            key = _key(node.domain, node.op_type, node.overload)
            sig = None if key in functions else find_signature(key[0], node.op_type, opsets.get(key[0], 1))
            for index, name in enumerate(node.input):
                port = sig.input(index) if sig else None
                if index in functions.needed.get(key, ()) or port is not None and not port.optional:
                    needed.add(name)
            stack += [body.node for body in bodies_of(node)]
    return frozenset(positions[name] for name in needed if name in positions)


def _key(domain: str, name: str, overload: str) -> Key:
    return ("" if domain == "ai.onnx" else domain), name, overload
