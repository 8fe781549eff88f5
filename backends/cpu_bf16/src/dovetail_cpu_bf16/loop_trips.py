"""Facts about the trips of a Loop that are known before it runs, for the limits of `cpu-bf16`.

After a call without trips, outputs that only the body computes have the contents that any earlier call left in their
memory: scan outputs, and carried values that the body does not read. If OpenVINO 2026.4 knows that there are no trips,
it crashes the process. It misreads counts below 0 and beyond 32 bits, which the engine repairs (`loop_repairs.py`,
`session.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import bodies, used_values
from onnx_ir.convenience import get_const_tensor

from dovetail_cpu_bf16.integer_bounds import bounds_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["reserved_rows", "trip_outputs", "trips"]

_NO_LIMIT = 2**63 - 1
_EXTENTS = frozenset({"Shape", "Size"})


def trips(node: ir.Node) -> str:
    """Return the known facts about the trips of a Loop.

    Returns:
        `none`; `some`, at least one; `any`, also none.
    """
    count, condition = _input(node, 0), _input(node, 1)
    starts = condition is None or bool(_number(condition))
    constant = _number(count)
    if condition is not None and _number(condition) == 0 or constant is not None and constant <= 0:
        return "none"
    certain = count is None or constant is not None or bounds_of(count).low >= 1
    return "some" if starts and certain else "any"


def trip_outputs(node: ir.Node) -> int:
    """Return the number of used outputs of a Loop that only a trip computes."""
    (body,) = bodies(node)
    used = [value.is_graph_output() or bool(value.uses()) for value in node.outputs]
    carried = len(body.inputs) - 2
    read = _read_states(body, [1 + index for index, one in enumerate(used) if one])
    return sum(used[carried:]) + sum(one and index not in read for index, one in enumerate(used[:carried]))


def _read_states(body: ir.Graph, ends: list[int]) -> set[int]:
    """Return the carried values that the condition and the results `ends` of a body are computed from, by index."""
    states = {id(value): index for index, value in enumerate(list(body.inputs)[2:])}
    return {states[id(value)] for value in _sources(body, ends) if id(value) in states}


def _sources(body: ir.Graph, ends: list[int]) -> list[ir.Value]:
    """Return the inputs of a Loop's body, and the values of graphs around it, that results of the body depend on.

    What OpenVINO computes without a value counts as independent of it: extents, and results of inner control flow that
    other values decide.
    """
    states = {id(value): index for index, value in enumerate(list(body.inputs)[2:])}
    found: dict[int, ir.Value] = {}
    seen: set[int] = set()
    waiting = [body.outputs[index] for index in (0, *ends)]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        producer = value.producer()
        if producer is not None and producer.graph is body:
            waiting += _operands(producer, value)
            continue
        found[id(value)] = value
        if id(value) in states:
            waiting.append(body.outputs[1 + states[id(value)]])  # what the next trip reads
    return list(found.values())


def _operands(node: ir.Node, result: ir.Value) -> list[ir.Value]:
    """Return the values that a result of a node depends on."""
    if node.op_type in _EXTENTS:
        return []
    if node.op_type != "Loop" or trips(node) != "some":
        return list(used_values(node))
    (body,) = bodies(node)
    own = {id(value): index for index, value in enumerate(body.inputs)}
    reached = _sources(body, [1 + node.outputs.index(result)])
    operands = [node.inputs[own[id(value)]] if id(value) in own else value for value in reached]
    return [value for value in (*node.inputs[:2], *operands) if value is not None]


def reserved_rows(node: ir.Node) -> int:
    """Return the rows that OpenVINO reserves for each scan output before the first trip; 0 if there is no limit."""
    (body,) = bodies(node)
    scans = len(node.outputs) > len(body.inputs) - 2
    constant = _number(_input(node, 0)) if scans else None
    return 0 if constant is None or constant == _NO_LIMIT else constant


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _number(value: ir.Value | None) -> int | None:
    """Return the number of a constant of one element; None if `value` is none."""
    if value is None or value.is_graph_input():
        return None
    tensor = get_const_tensor(value)
    return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None
