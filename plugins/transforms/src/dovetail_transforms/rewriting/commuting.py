"""Matching of patterns whose operators commute, share values and hold numbers; used by rewrites with `commutes`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail_transforms.rewriting.patterns import AnyNumber, AnyValue, Either, Match, Operator, Output

if TYPE_CHECKING:
    import onnx_ir as ir


_COMMUTATIVE = frozenset({"Add", "Mul"})
_DIGITS = {"FLOAT16": 2e-3, "BFLOAT16": 8e-3}
"""Relative tolerance of numbers in short float types, about two units in the last place; see `_TOLERANCE`."""
_TOLERANCE = 1e-5  # exporters write constants such as 0.7071 in float32 with six digits at least

_COST = {AnyNumber: 0, Operator: 1, Output: 1, Either: 2, AnyValue: 3}
"""The order in which inputs are matched."""

_Task: TypeAlias = "tuple[Any, ir.Value | None]"


@dataclass(frozen=True)
class _State:
    """A partial match: values by parameter and nodes by name, and the node of each operator of the pattern."""

    bound: Mapping[str, Any]
    held: Mapping[int, ir.Node]


def commuting_matches(root: Operator, node: ir.Node) -> Iterator[Match]:
    """Yield the matches of the pattern rooted at `root` against `node`, in every order of commutative inputs.

    An operator that occurs at several places of the pattern is one node. Only the root may have readers, or be read as
    output of the graph, outside of the match.

    Args:
        root: A pattern.
        node: The node that computes its result.
    """
    if not root.is_operator_of(node):
        return
    for state in _expand(root, node, (), _State({"node": node}, {})):
        nodes = _in_order(node, state.held.values())
        if not _read_outside(nodes, node):
            yield Match(dict(state.bound), nodes)


def _solve(tasks: Sequence[_Task], state: _State) -> Iterator[_State]:
    if not tasks:
        yield state
        return
    (part, value), rest = tasks[0], tasks[1:]
    if isinstance(part, AnyValue):
        if value is None and not part.optional:
            return
        if part.name not in state.bound:
            yield from _solve(rest, _State({**state.bound, part.name: value}, state.held))
        elif state.bound[part.name] is value:
            yield from _solve(rest, state)
    elif isinstance(part, Either):
        for one in part.parts:
            yield from _solve(((one, value), *rest), state)
    elif isinstance(part, AnyNumber):
        if _is_number(part, value):
            bound = {**state.bound, part.called: value} if part.called else state.bound
            yield from _solve(rest, _State(bound, state.held))
    else:
        yield from _solve_producer(part, value, rest, state)


def _solve_producer(
    part: Operator | Output, value: ir.Value | None, rest: Sequence[_Task], state: _State
) -> Iterator[_State]:
    part, index = (part.operator, part.index) if isinstance(part, Output) else (part, 0)
    producer = value.producer() if value is not None else None
    if value is None or producer is None or value.index() != index or not part.is_operator_of(producer):
        return
    known = state.held.get(id(part))
    if known is not None:
        if known is producer:
            yield from _solve(rest, state)
    elif producer.graph is state.bound["node"].graph and producer not in state.held.values():
        yield from _expand(part, producer, rest, state)


def _expand(part: Operator, node: ir.Node, rest: Sequence[_Task], state: _State) -> Iterator[_State]:
    open_ended = bool(part.inputs) and part.inputs[-1] is ...
    wanted = part.inputs[:-1] if open_ended else part.inputs
    if not open_ended and any(value is not None for value in node.inputs[len(wanted) :]):
        return
    bound = {**state.bound, part.called: node} if part.called else state.bound
    held = _State(bound, {**state.held, id(part): node})
    inputs = [*node.inputs, *[None] * len(wanted)][: len(wanted)]
    orders = [inputs]
    if len(wanted) == 2 and node.op_type in _COMMUTATIVE and inputs[0] is not inputs[1]:
        orders.append(inputs[::-1])
    for order in orders:
        # What is decided by one look comes first, so that a wrong order fails early.
        tasks = sorted(zip(wanted, order), key=lambda task: _COST[type(task[0])])
        yield from _solve((*tasks, *rest), held)


def number_of(value: ir.Value | None) -> float | None:
    """Return the number in a float or integer constant with one element and at most one axis; else None."""
    import onnx_ir as ir

    if value is None or value.is_graph_input() or value.shape is not None and len(value.shape) > 1:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size != 1 or len(tensor.shape) > 1 or tensor.dtype.name in ("STRING", "BOOL"):
        return None
    return float(tensor.numpy().reshape(()))


def _is_number(part: AnyNumber, value: ir.Value | None) -> bool:
    found = number_of(value)
    if found is None or value is None or part.near is None:
        return found is not None
    tolerance = _DIGITS.get(value.dtype.name, _TOLERANCE) if value.dtype is not None else _TOLERANCE
    return math.isclose(found, part.near, rel_tol=tolerance, abs_tol=tolerance * abs(part.near))


def _in_order(root: ir.Node, nodes: Iterator[ir.Node] | Any) -> list[ir.Node]:
    """Return the nodes with users before producers."""
    members, done, ordered = set(nodes), set(), []
    stack = [(root, False)]
    while stack:
        node, left = stack.pop()
        if left:
            ordered.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            producers = (value.producer() for value in node.inputs if value is not None)
            stack += [(one, False) for one in producers if one is not None and one in members]
    return ordered[::-1]


def _read_outside(nodes: Sequence[ir.Node], root: ir.Node) -> bool:
    members = set(nodes)
    for node in nodes:
        if node is root:
            continue
        for value in node.outputs:
            if value.is_graph_output() or any(reader not in members for reader, _ in value.uses()):
                return True
    return False
