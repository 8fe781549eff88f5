"""Calls of local functions replaced by the nodes of the functions.

onnx has an inliner. It forgets default values of attributes where a call leaves them out, and cannot bring a function
of another opset to the model's with the attributes that a call gives it.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames
from dovetail_onnx.topological_order import bodies_of

from dovetail_transforms.canonicalize.names import all_nodes, defined_names

if TYPE_CHECKING:
    import onnx

FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


def key_of(function: onnx.FunctionProto) -> FunctionKey:
    """Return the key that identifies a function."""
    return function.domain, function.name, function.overload


def called_by(node: onnx.NodeProto) -> FunctionKey:
    """Return the function that a node calls, if there is one."""
    return node.domain, node.op_type, node.overload


def nodes_of(function: onnx.FunctionProto) -> Iterable[onnx.NodeProto]:
    """Yield the nodes of a function, and those of all bodies in it."""
    for node in function.node:
        yield node
        for body in bodies_of(node):
            yield from all_nodes(body)


class Inliner:
    """Replaces calls of functions.

    Args:
        functions: The functions whose calls are replaced.
        graph: The main graph, whose names stay.
        finish: Called with a copy of a function, its attributes bound, before its nodes replace a call.
    """

    def __init__(
        self,
        functions: Mapping[FunctionKey, onnx.FunctionProto],
        graph: onnx.GraphProto,
        finish: Callable[[onnx.FunctionProto], None],
    ):
        self._functions, self._finish = functions, finish
        taken = {name for node in all_nodes(graph) for name in (*node.input, *node.output)}
        taken |= {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        for body in (body for node in all_nodes(graph) for body in bodies_of(node)):
            taken |= {value.name for value in (*body.input, *body.initializer)}
        self._names = FreshNames(taken)

    def inline(self, holder: onnx.GraphProto | onnx.FunctionProto) -> None:
        """Replace all calls in a graph or function, and in the bodies in it, in place."""
        waiting: deque[Any] = deque([holder])
        while waiting:
            nodes = waiting.popleft().node
            if any(called_by(node) in self._functions for node in nodes):
                expanded = self._expanded(nodes)
                del nodes[:]
                nodes.extend(expanded)
            waiting.extend(body for node in nodes for body in bodies_of(node))

    def _expanded(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        done = []
        waiting = deque(nodes)
        while waiting:
            node = waiting.popleft()
            function = self._functions.get(called_by(node))
            if function is None:
                done.append(type(node).FromString(node.SerializeToString()))
            else:
                waiting.extendleft(reversed(self._body(node, function)))
        return done

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        """Return the nodes that compute the results of a call."""
        import onnx.helper

        copy = type(function).FromString(function.SerializeToString())
        _bind(copy, call)
        self._finish(copy)
        names: MutableMapping[str, str] = dict.fromkeys(copy.input, "")
        names.update(zip(copy.input, call.input))
        passed = []
        for inner, outer in zip(copy.output, call.output):
            if not outer:
                continue
            if inner in names:  # an input, or named as an output before
                passed.append(onnx.helper.make_node("Identity", [names[inner]], [outer]))
            else:
                names[inner] = outer
        for node in copy.node:
            self._rename(node, names)
        return [*copy.node, *passed]

    def _rename(self, node: onnx.NodeProto, names: MutableMapping[str, str]) -> None:
        """Rename the values that a node reads and computes; those that it computes are added to `names`."""
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for body in bodies_of(node):
            self._rename_body(body, ChainMap({}, names))
        for index, name in enumerate(node.output):
            if name and name not in names:
                names[name] = self._names.fresh(name)
            node.output[index] = names.get(name, "")

    def _rename_body(self, body: onnx.GraphProto, names: ChainMap[str, str]) -> None:
        """Rename what a body defines, whatever the names mean outside, and what it reads of outside."""
        for name in defined_names(body):
            names[name] = self._names.fresh(name)
        for value in (*body.input, *body.output, *body.initializer):
            value.name = names.get(value.name, value.name)
        for tensor in body.sparse_initializer:
            tensor.values.name = names[tensor.values.name]
        for node in body.node:
            self._rename(node, names)
        del body.value_info[:]


def _bind(function: onnx.FunctionProto, call: onnx.NodeProto) -> None:
    """Replace references to attributes of a function by the values in a call, or by their defaults; or drop them."""
    import onnx

    if any(attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for attribute in call.attribute):
        raise DovetailError(
            f"'{call.name or call.op_type}' gives function '{function.name}' a graph as an attribute",
            "export the model with this function inlined",
        )
    values = {attribute.name: attribute for attribute in function.attribute_proto}
    values.update((attribute.name, attribute) for attribute in call.attribute)
    for node in nodes_of(function):
        for index in reversed(range(len(node.attribute))):
            attribute = node.attribute[index]
            if not attribute.ref_attr_name:
                continue
            name, value = attribute.name, values.get(attribute.ref_attr_name)
            if value is None:
                del node.attribute[index]
            else:
                attribute.CopyFrom(value)
                attribute.name = name
