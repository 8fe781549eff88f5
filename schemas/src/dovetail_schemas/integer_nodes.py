"""Integers that no type of a rule lists: nodes of operators on floats that compute in int64, int32 or Booleans.

Where a rule lists floats or quantized types alone, ports of integers are free, because most of them are indices, axes
and shapes. An operator that computes in floats usually also takes integers at the same ports (Add of int64), which an
accelerator may not compute: `integers: refuse` says so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dovetail_onnx.signatures import find_signature

from dovetail_schemas.operators import FLOATS
from dovetail_schemas.port_types import ports_of

if TYPE_CHECKING:
    from dovetail_onnx.signatures import Port

    from dovetail_schemas.backend import FileBackend
    from dovetail_schemas.node_view import NodeView
    from dovetail_schemas.rules import Rule
    from dovetail_schemas.type_specs import PortTypes

_COMPUTED = frozenset({"float64", "float32", "float16", "bfloat16"})
_INTEGERS = frozenset({"int64", "int32"})
_SHOWN = 6


def unlisted_integers(view: NodeView, said: PortTypes | None) -> str:
    """Describe a port with integers or Booleans where the operator also takes floats, and that no type lists.

    Indices, axes, masks and shapes are none of these: their ports take no floats. Without a schema of the operator,
    nothing is known of its ports.

    Args:
        view: The node; all its values have a type.
        said: The types in its rule, or None.

    Returns:
        `A is int64`; empty if there is none.
    """
    for port in ports_of(view):
        if port.present in FLOATS or port.contained or not _computes(port.formal):
            continue
        if said is not None and (port.name in said.ports or port.alias in said.ports):
            continue  # refused already, if its types do not list it
        if said is None or said.common is None or not _lists_integers(said):
            return f"{port.name} is {port.present}"
    return ""


def _computes(formal: Port | None) -> bool:
    """Check whether a port takes floats as well as other numbers."""
    return formal is not None and not _COMPUTED.isdisjoint(formal.dtypes)


def _lists_integers(said: PortTypes) -> bool:
    """Check whether the types for all ports include unquantized integers: then they alone are taken."""
    return any(dtype not in FLOATS for spec in said.common or () if not spec.quantized for dtype in spec.dtype)


def integers_by_accident(backend: FileBackend) -> str:
    """Describe the operators whose rules list floats or quantized types alone, and that also take integers.

    Returns:
        The text of a note; empty if there are none, or the file says `integers:`.
    """
    if backend.integers:
        return ""
    found = [op_type for domain, op_type in backend.listed() if _takes_integers(backend.rule(domain, op_type), backend)]
    if not found:
        return ""
    return (
        f"{_named(found)} also {'take' if len(found) > 1 else 'takes'} nodes of integers, such as int64, because their "
        f"types list none and nothing refuses them; {WAY_OUT}"
    )


WAY_OUT = "`integers: refuse` leaves such nodes to others, `integers: accept` says that they are meant"


def accepted_by_accident(counts: Counter[str]) -> str:
    """Describe accepted nodes that compute in integers which their rules do not list, counted by operator.

    Returns:
        The text of a note; empty if there are none.
    """
    if not counts:
        return ""
    total = counts.total()
    nodes = "1 accepted node computes" if total == 1 else f"{total} accepted nodes compute"
    each = _named([f"{count} x {name}" for name, count in counts.items()])
    return f"{nodes} in integers that no type of the file lists ({each}); {WAY_OUT}"


def _takes_integers(rule: Rule, backend: FileBackend) -> bool:
    if rule.status != "ok":
        return False
    sig = find_signature(rule.domain, rule.op_type, backend.opset[1])
    if sig is None:
        return False
    formals = [
        port for port in (*sig.inputs, *sig.outputs) if _computes(port) and not _INTEGERS.isdisjoint(port.dtypes)
    ]
    for row in rule.rows:
        said = rule.types.narrowed(row.types) if rule.types and row.types else row.types or rule.types
        if said is None or said.common is None or _lists_integers(said):
            continue
        if any(port.name not in said.ports for port in formals):
            return True
    return False


def _named(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
