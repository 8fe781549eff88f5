"""Control flow whose course is constant: an If that always takes one branch, a Loop that never runs, or runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FreshNames, all_nodes, bodies, is_onnx, name_of, named_bodies
from dovetail.text import pluralize

from dovetail_transforms.canonicalize.clean_up import detach_bodies

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    Constant = Callable[[ir.Value], np.ndarray | None]
    """Returns the array of a small constant; None for any other value."""

_NEAR = 32  # values between an input and a condition
_AXES_AS_INPUT = 13  # the opset since which Unsqueeze reads its axes


class Settled(NamedTuple):
    """What a node of control flow comes to.

    Attributes:
        rule: A short name, for the remark.
        why: What is constant, and what follows, in one clause.
        body: The body that runs exactly once; None if none does.
        trips: How often a loop runs; None for an If.
    """

    rule: str
    why: str
    body: ir.Graph | None
    trips: int | None = None


def settled(node: ir.Node, constant: Constant) -> Settled | None:
    """Return what a node comes to if it is control flow whose course is constant, and can be replaced; else None."""
    import onnx_ir as ir

    if not is_onnx(node) or node.op_type not in ("If", "Loop"):
        return None
    if any(value.is_graph_output() and not isinstance(value.type, ir.TensorType) for value in node.outputs):
        return None  # an Identity takes other types only from later opsets on
    return _branch_taken(node, constant) if node.op_type == "If" else _trips_made(node, constant)


def _branch_taken(node: ir.Node, constant: Constant) -> Settled | None:
    condition = _scalar(node.inputs[0], constant)
    if condition is None:
        return None
    taken = "then_branch" if condition else "else_branch"
    dead = sum(1 for name, body in named_bodies(node) if name != taken for _ in all_nodes(body))
    why = (
        f"the condition is constant: {taken} is always taken, and the other one is dropped ({pluralize(dead, 'node')})"
    )
    return Settled("constant-condition", why, node.attributes[taken].as_graph())


def settling_inputs(model: Model) -> list[str]:
    """Return the inputs of one number that alone choose the branches of an If, such as a sampling rate."""
    inputs = {id(value): value for value in model.graph.inputs if not value.is_initializer()}
    found: dict[str, None] = {}
    for node in model.graph:
        if node.op_type == "If" and is_onnx(node) and node.inputs[0] is not None:
            read = _inputs_behind(node.inputs[0], inputs)
            found.update(dict.fromkeys(map(name_of, read if all(map(_is_one_number, read)) else ())))
    return list(found)


def _inputs_behind(value: ir.Value, inputs: Mapping[int, ir.Value]) -> list[ir.Value]:
    """Return the inputs that a value follows from; empty if they are more than a few nodes away."""
    moving, seen, found = [value], {id(value)}, []
    while moving:
        value = moving.pop()
        if id(value) in inputs:
            found.append(value)
            continue
        producer = value.producer()
        if len(seen) > _NEAR or producer is not None and bodies(producer):
            return []
        new = [one for one in (producer.inputs if producer is not None else ()) if one is not None]
        moving += [one for one in new if id(one) not in seen]
        seen.update(map(id, new))
    return found


def _is_one_number(value: ir.Value) -> bool:
    shape = value.shape
    return shape is not None and all(extent == 1 for extent in shape)


def _trips_made(node: ir.Node, constant: Constant) -> Settled | None:
    """Return what a Loop comes to that runs never or once; None if it may run more often."""
    limit, condition = (_scalar(node.inputs[at], constant) if len(node.inputs) > at else None for at in (0, 1))
    asked = len(node.inputs) > 1 and node.inputs[1] is not None
    (body,) = bodies(node)
    if any(value is None for value in node.inputs[2:]):
        return None
    if condition is not None and not condition or limit is not None and limit <= 0:
        what = "condition is false" if condition is not None and not condition else f"trip count is {limit}"
        if all(map(_is_empty_known, _unread_left_out(node, body))):
            dead = pluralize(sum(1 for _ in all_nodes(body)), "node")
            return Settled("no-trips", f"its {what}: it never runs, and its body is dropped ({dead})", None, 0)
    elif limit == 1 and (condition is not None or not asked):
        return Settled("one-trip", "its trip count is 1: its body takes its place", body, 1)
    return None


def _unread_left_out(node: ir.Node, body: ir.Graph) -> Iterable[ir.Value]:
    """Return the scans of a body, the results that a Loop collects, if something reads them."""
    carried = len(node.inputs) - 2
    pairs = zip(node.outputs[carried:], body.outputs[1 + carried :], strict=True)
    return [scan for value, scan in pairs if value.uses() or value.is_graph_output()]


def _is_empty_known(scan: ir.Value) -> bool:
    """Check whether the type and rank of a scan are known, so that one of no trips can be written."""
    import onnx_ir as ir

    return scan.shape is not None and scan.dtype not in (None, ir.DataType.STRING)


def _scalar(value: ir.Value | None, constant: Constant) -> int | None:
    array = None if value is None else constant(value)
    return None if array is None or array.size != 1 else int(array.reshape(-1)[0])


def replace_settled(model: Model, graph: ir.Graph, node: ir.Node, found: Settled, names: FreshNames) -> set[int]:
    """Replace control flow by what it comes to.

    A Loop of no trips gives the initial values of what it carries, and scans without elements. The extents of these
    that its body leaves open are 0, as in ONNX Runtime.

    Args:
        model: The model.
        graph: The graph of the node.
        node: The node.
        found: What it comes to.
        names: Generates names for new values.

    Returns:
        The `id`s of the values that may have become better known.
    """
    before: list[ir.Node] = []
    after: list[ir.Node] = []
    if found.body is None:
        results = _without_trips(graph, node, names)
    else:
        results = list(found.body.outputs)
        if found.trips is not None:
            results, after = _of_one_trip(model, graph, node, found.body, names)
        before = list(found.body)
        found.body.outputs.clear()
        found.body.remove(before)
        for name in list(found.body.initializers):
            graph.register_initializer(found.body.initializers.pop(name))
    detach_bodies(node)
    _put_in_place(graph, node, results, [*before, *after])
    read = (value for one in (*before, *after) for value in one.inputs if value is not None)
    return {id(value) for value in (*results, *read)}


def _put_in_place(graph: ir.Graph, node: ir.Node, results: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> None:
    """Put nodes in the place of another one, and their results in the place of its own."""
    import onnx_ir as ir

    renamed = []
    for value, result in zip(node.outputs, results, strict=True):
        if not result.is_graph_input():  # the interface stays as it was declared
            result.type = result.type or value.type
            result.shape = value.shape if result.shape is None else result.shape
        if value.is_graph_output():
            kept = ir.Node("", "Identity", [result], num_outputs=1, name=f"{node.name}_{value.index()}")
            kept.outputs[0].type, kept.outputs[0].shape = value.type, value.shape
            value.replace_all_uses_with(kept.outputs[0], replace_graph_outputs=True)
            kept.outputs[0].name, value.name = value.name, None
            renamed.append(kept)
        else:
            value.replace_all_uses_with(result)
    graph.insert_after(node, [*nodes, *renamed])
    graph.remove(node, safe=True)


def _without_trips(graph: ir.Graph, node: ir.Node, names: FreshNames) -> list[ir.Value]:
    import numpy as np
    import onnx_ir as ir

    (body,) = bodies(node)
    carried = [value for value in node.inputs[2:] if value is not None]
    results = list(carried)
    for value, scan in zip(node.outputs[len(carried) :], body.outputs[1 + len(carried) :], strict=True):
        dtype = scan.dtype if scan.dtype not in (None, ir.DataType.STRING) else ir.DataType.FLOAT  # nothing reads it
        inner = [extent if isinstance(extent, int) else 0 for extent in scan.shape or ()]
        empty = ir.Tensor(np.zeros([0, *inner], dtype.numpy()), dtype=dtype)
        results.append(_initializer(graph, names.fresh(f"{value.name}_none"), empty))
    return results


def _of_one_trip(
    model: Model, graph: ir.Graph, node: ir.Node, body: ir.Graph, names: FreshNames
) -> tuple[list[ir.Value], list[ir.Node]]:
    """Let a body read what its first trip is given; return its results, and the nodes that stack single scans."""
    import numpy as np
    import onnx_ir as ir

    carried = [value for value in node.inputs[2:] if value is not None]
    first = (np.array(0, np.int64), np.array(True))
    for given, number in zip(body.inputs[:2], first, strict=True):
        if given.uses() or given.is_graph_output():
            fixed = _initializer(graph, names.fresh(f"{given.name}_first"), ir.tensor(number))
            given.replace_all_uses_with(fixed, replace_graph_outputs=True)
    for given, value in zip(body.inputs[2:], carried, strict=True):
        given.replace_all_uses_with(value, replace_graph_outputs=True)
    results, nodes = list(body.outputs[1 : 1 + len(carried)]), []
    axes = ir.tensor(np.array([0], np.int64))
    for value, scan in zip(node.outputs[len(carried) :], body.outputs[1 + len(carried) :], strict=True):
        name = names.fresh(f"{value.name}_axes")
        reads = [_initializer(graph, name, axes)] if model.opset >= _AXES_AS_INPUT else []
        attributes = [] if reads else [ir.AttrInt64s("axes", [0])]
        stacked = ir.Node("", "Unsqueeze", [scan, *reads], attributes, num_outputs=1, name=f"{node.name}_{name}")
        stacked.outputs[0].name = names.fresh(f"{value.name}_once")
        stacked.outputs[0].type = value.type or scan.type
        stacked.outputs[0].shape = None if scan.shape is None else ir.Shape([1, *scan.shape])
        nodes.append(stacked)
        results.append(stacked.outputs[0])
    return results, nodes


def _initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    import onnx_ir as ir

    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def agree_on_shapes(model: Model, news: set[int]) -> bool:
    """Give open results of every If the shape that both of its branches return, the innermost first.

    Args:
        model: The model.
        news: Receives the `id`s of the results that have a shape now.

    Returns:
        Whether there are any.
    """

    changed = False
    for node in reversed(list(model.nodes())):
        if node.op_type != "If" or not is_onnx(node):
            continue
        for value, one, other in zip(node.outputs, *(body.outputs for body in bodies(node)), strict=True):
            known = one.shape is not None and one.shape.is_static() and one.shape == other.shape
            if known and (value.shape is None or not value.shape.is_static()):
                value.type, value.shape = value.type or one.type, one.shape
                news.add(id(value))
                changed = True
    return changed
