"""Structural invariants: values are defined once and before their uses, names are unique, opset versions agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir.graphs import bodies
from dovetail.ir.origin import from_source

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


def structure_problems(model: Model) -> tuple[list[str], list[tuple[Mapping[str, int], list[ir.Node]]]]:
    """Return the structural problems of `model`, one line each.

    Also returns the opset imports and all nodes, bodies included, of the main graph and of every function.
    """
    problems = _version_problems(model)
    nodes: list[tuple[Mapping[str, int], list[ir.Node]]] = []
    parts: list[ir.Graph | ir.Function] = [model.graph, *model.ir.functions.values()]
    for part in parts:
        scope = _Scope(problems)
        scope.graph(part)
        nodes.append((part.opset_imports, scope.nodes))
    return problems, nodes


def _version_problems(model: Model) -> list[str]:
    import onnx.helper

    opset, ir_version = model.ir.opset_imports.get("", 0), model.ir.ir_version
    needed = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if needed is not None and ir_version < needed:
        return [f"opset {opset} needs IR version {needed} or later, the model says {ir_version}"]
    return []


class _Scope:
    """A walk over a graph and its bodies that keeps one set of visible values."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        self.nodes: list[ir.Node] = []
        self.values: set[int] = set()
        self.names: dict[str, ir.Value] = {}
        self.node_names: dict[str, ir.Node] = {}

    def graph(self, graph: ir.Graph | ir.Function) -> None:
        import onnx_ir as ir

        added: list[ir.Value] = []
        initializers = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        for value in (*graph.inputs, *initializers):
            if id(value) not in self.values:
                self._define(value, added, None)
        for node in graph:
            self._node(node, added)
        for value in graph.outputs:
            if value is None or id(value) not in self.values:
                name = value.name if value is not None else "?"
                self.problems.append(f"graph output '{name}' is not defined in '{graph.name or 'the function'}'")
        for value in added:
            self.values.discard(id(value))
            name = value.name or ""
            if self.names.get(name) is value:
                del self.names[name]

    def _node(self, node: ir.Node, added: list[ir.Value]) -> None:
        self.nodes.append(node)
        name = node.name
        if name:
            other = self.node_names.setdefault(name, node)
            if other is not node:
                self.problems.append(f"two nodes are called '{name}' ({other.op_type}, {node.op_type})")
        for value in node.inputs:
            if value is not None and id(value) not in self.values:
                self.problems.append(f"{_label(node)} reads '{value.name}' before it is defined")
        for body in bodies(node) if node.attributes.data else ():
            self.graph(body)
        for value in node.outputs:
            if value.name != "":
                self._define(value, added, node)

    def _define(self, value: ir.Value, added: list[ir.Value], producer: ir.Node | None) -> None:
        self.values.add(id(value))
        added.append(value)
        name = value.name
        if not name:
            self.problems.append(f"{_label(producer)}: a value has no name")
        elif self.names.setdefault(name, value) is not value:
            self.problems.append(f"value '{name}' is defined twice, once by {_label(producer)}")


def _label(node: ir.Node | None) -> str:
    if node is None:
        return "the graph's inputs and initializers"
    return f"{node.op_type} '{node.name}'{from_source(node)}" if node.name else f"an unnamed {node.op_type}"


def weight_problems(model: Model) -> list[str]:
    """Return the initializers of the main graph whose tensor and value disagree on the type, one line each."""
    problems = []
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and value.dtype is not None and tensor.dtype != value.dtype:
            problems.append(f"initializer '{value.name}' holds {tensor.dtype.name}, its value is {value.dtype.name}")
    return problems
