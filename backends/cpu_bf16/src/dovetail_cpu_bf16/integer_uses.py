"""Uses of integers: whether a value only decides extents, positions and indices, or is used as a number."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dovetail_onnx import find_signature, input_name
from dovetail_placement import operator_facts
from dovetail_precision import is_integer

if TYPE_CHECKING:
    import onnx_ir as ir

READ_NO_ELEMENTS = frozenset({"Shape", "Size"})
"""Operators whose results depend on the extents of their inputs."""
_MAX_USES = 64
"""Uses visited per value, which keeps the cost of facts linear in the model's size."""


def is_control(node: ir.Node, index: int) -> bool:
    """Check whether input `index` of `node` holds extents, positions or indices, which only control the result."""
    return _is_control_port(node.domain, node.op_type, node.version, index)


def only_controls(value: ir.Value) -> bool:
    """Check whether `value`, and all that is computed from it, ends in inputs that `is_control`.

    An integer that overflows there belongs to a tensor that does not fit into any memory. One that leaves the region or
    becomes a float is used as a number. Values that a comparison of such integers selects may be, too, unless they are
    integers that only control; the elements of a value of which only extents are read do not matter.
    """
    waiting, seen = [value], {id(value)}
    visited = 0
    while waiting:
        current = waiting.pop()
        if current.is_graph_output():
            return False
        for reader, index in current.uses():
            visited += 1
            if visited > _MAX_USES:
                return False
            if is_control(reader, index) or reader.op_type in READ_NO_ELEMENTS:
                continue
            for output in reader.outputs:
                if not is_integer(output):
                    return False
                if id(output) not in seen:
                    seen.add(id(output))
                    waiting.append(output)
    return True


@cache
def _is_control_port(domain: str, op_type: str, version: int | None, index: int) -> bool:
    name = input_name(index, find_signature(domain, op_type, version))
    return operator_facts().input_kind(domain, op_type, name) in ("shape", "index")
