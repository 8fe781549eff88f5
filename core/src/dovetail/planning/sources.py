"""What became of the nodes of the source model that are not in the result any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dovetail.planning.identity import operator_name
from dovetail.planning.placement import origin_of

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.plan import SourceNode

__all__ = ["lost_nodes"]


class _Node(NamedTuple):
    """What matters here of a node, whether it comes from a proto or from a graph."""

    name: str
    domain: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def lost_nodes(source: Model, model: Model) -> list[SourceNode]:
    """The nodes of `source` that `model`, which was made from it, does not have any more, in the order of `source`."""
    from dovetail.planning.plan import SourceNode

    owners: dict[str, ir.Node] = {}
    computed: dict[str, ir.Node] = {}
    constants: set[str] = set()
    for _, graph in model.graphs():
        constants.update(graph.initializers)
        for node in graph:
            for name in origin_of(node):
                owners.setdefault(name, node)
            for value in node.outputs:
                computed.setdefault(value.name, node)
    lost, alive_inputs = [], set(_output_names(source))
    for node in _nodes(source):
        owner = owners.get(node.name) if node.name else None
        owner = owner or next((computed[name] for name in node.outputs if name in computed), None)
        if owner is not None and owner.op_type == node.op_type:
            alive_inputs.update(node.inputs)
        else:
            lost.append((node, owner))
    functions = _functions(source)
    found = []
    for node, owner in lost:
        if owner is not None:
            fate = f"folded into {owner.name}"
        elif (node.domain, node.op_type) in functions:
            fate = "inlined: the nodes of the function stand in its place"
        elif any(name in constants for name in node.outputs):
            fate = "computed once: its result is a constant"
        elif any(name in alive_inputs for name in node.outputs):
            fate = "removed: its readers read its input"
        else:
            fate = "removed: nothing reads its result any more"
        name = node.name or "_".join([node.op_type, *node.outputs[:1]])
        found.append(SourceNode(name, operator_name(node.domain, node.op_type), fate))
    return found


def _nodes(model: Model) -> Iterator[_Node]:
    """Every node of the model and its bodies; a graph that nobody has asked for yet is not made for this."""
    if model.untouched:
        yield from _proto_nodes(model.skeleton().proto.graph)
        return
    for node in model.nodes():
        names = (tuple(v.name or "" for v in values if v is not None) for values in (node.inputs, node.outputs))
        yield _Node(node.name or "", node.domain, node.op_type, *names)


def _proto_nodes(graph: onnx.GraphProto) -> Iterator[_Node]:
    stack = [graph]
    while stack:
        for node in stack.pop().node:
            yield _Node(node.name, node.domain, node.op_type, tuple(node.input), tuple(node.output))
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)


def _output_names(model: Model) -> Iterable[str]:
    if model.untouched:
        return [value.name for value in model.skeleton().proto.graph.output]
    return [value.name or "" for value in model.graph.outputs]


def _functions(model: Model) -> set[tuple[str, str]]:
    if model.untouched:
        return {(function.domain, function.name) for function in model.skeleton().proto.functions}
    return {(function.domain, function.name) for function in model.ir.functions.values()}
