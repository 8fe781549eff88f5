"""What is known of the trips of a Loop before it runs, as facts for the limits of `cpu-bf16`.

After a call without trips, OpenVINO's scan outputs hold what an earlier call, of anybody, has left in their memory. If
OpenVINO 2026.4 knows that there are no trips, it ends the process. It misreads counts below 0 and beyond 32 bits, which
the engine mends (`workarounds.py`, `session.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import bodies
from onnx_ir.convenience import get_const_tensor

from dovetail_cpu_bf16.integer_bounds import bounds_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["reserved_rows", "scan_outputs", "trips"]

_NO_LIMIT = 2**63 - 1


def trips(node: ir.Node) -> str:
    """Return what is known of the trips of a Loop.

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


def scan_outputs(node: ir.Node) -> int:
    """Return the number of used scan outputs of a Loop."""
    return sum(value.is_graph_output() or bool(value.uses()) for value in _scanned(node))


def reserved_rows(node: ir.Node) -> int:
    """Return the rows that OpenVINO reserves for each scan output before the first trip; 0 if there is no limit."""
    constant = _number(_input(node, 0)) if scan_outputs(node) else None
    return 0 if constant is None or constant == _NO_LIMIT else constant


def _scanned(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the scan outputs of a Loop: they follow the carried values, of which there is one for each input."""
    carried = max((len(body.inputs) for body in bodies(node)), default=2) - 2
    return tuple(node.outputs)[carried:]


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _number(value: ir.Value | None) -> int | None:
    """Return the number of a constant of one element; None if `value` is none."""
    if value is None or value.is_graph_input():
        return None
    tensor = get_const_tensor(value)
    return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None
