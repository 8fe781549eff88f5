"""The fate of nodes of a source model that its result no longer has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.planning import operator_name, origin_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


class _Node(NamedTuple):
    """The fields of a node needed here, from a proto or from a graph."""

    name: str
    domain: str
    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]


def lost_nodes(source: Model, model: Model) -> list[tuple[str, str, str]]:
    """Return the nodes of `source` that `model`, compiled from it, no longer has, in the order of `source`.

    Returns:
        Name, operator and fate of each.
    """
    owners: dict[str, ir.Node] = {}
    computed: dict[str, ir.Node] = {}
    constants: set[str] = set()
    for _, graph in model.graphs():
        constants.update(graph.initializers)
        for node in graph:
            for name in origin_of(node):
                owners.setdefault(name, node)
            for value in node.outputs:
                computed.setdefault(value.name or "", node)
    lost, alive = [], []
    for old in _nodes(source):
        owner = owners.get(old.name) if old.name else None
        owner = owner or next((computed[name] for name in old.outputs if name in computed), None)
        if owner is not None and owner.op_type == old.op_type:
            alive.append(old)
        else:
            lost.append((old, owner))
    if not lost:
        return []
    alive_inputs = {*source.interface()[1], *(name for old in alive for name in old.inputs)}
    functions, found = _functions(source), list[tuple[str, str, str]]()
    for old, owner in lost:
        if owner is not None:
            fate = f"folded into {owner.name}"
        elif (old.domain, old.op_type) in functions:
            fate = "inlined: replaced by the nodes of the function"
        elif any(name in constants for name in old.outputs):
            fate = "folded: its result is a constant"
        elif any(name in alive_inputs for name in old.outputs):
            fate = "removed: its readers read its input instead"
        else:
            fate = "removed: nothing reads its result"
        name = old.name or "_".join([old.op_type, *old.outputs[:1]])
        found.append((name, operator_name(old.domain, old.op_type), fate))
    return found


def _nodes(model: Model) -> Iterator[_Node]:
    """Yield every node of the model and its bodies, without building a lazy model."""
    if model.lazy is not None:
        for node in model.lazy.nodes():
            yield _Node(node.name, node.domain, node.op_type, node.input, node.output)
        return
    for node in model.nodes():
        names = (tuple(v.name or "" for v in values if v is not None) for values in (node.inputs, node.outputs))
        yield _Node(node.name or "", node.domain, node.op_type, *names)


def _functions(model: Model) -> set[tuple[str, str]]:
    if model.lazy is not None:
        return model.lazy.functions()
    return {(function.domain, function.name) for function in model.ir.functions.values()}
