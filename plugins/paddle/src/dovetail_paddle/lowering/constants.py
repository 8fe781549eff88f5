"""Values of the `pd_op` graph that are known when it is lowered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir.required import dtype_of

from dovetail_paddle.element_types import onnx_type
from dovetail_paddle.pd_graph import BUILTIN, PD_OP, operands

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


_MOST = 1 << 28  # elements

CONSTANTS = frozenset(("full", "full_int_array", "assign_value"))
"""Operators without inputs whose result is known."""


def constant_of(value: ir.Value) -> np.ndarray | None:
    """Return the elements of a value that is a parameter or the result of a constant operator; None otherwise.

    A list of constants with one element each counts as the list of their elements.
    """
    import numpy as np

    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is None:
        return None
    if node.domain == BUILTIN and node.op_type == "combine":
        items = [constant_of(item) for item in operands(node)]
        known = [item.reshape(()) for item in items if item is not None and item.size == 1]
        return np.array(known) if len(known) == len(items) else None
    if node.domain != PD_OP:
        return None
    op_type = node.op_type.removesuffix("_")
    if op_type in CONSTANTS:
        return _made(node, op_type)
    if op_type in ("assign", "share_data", "memcpy_h2d", "memcpy_d2h"):
        return constant_of(operands(node)[0])
    return None


def check_size(*extents: float) -> None:
    """Refuse constants that no honest program has.

    Raises:
        ValueError: It has too many elements, or a negative extent.
    """
    if any(not 0 <= extent <= _MOST for extent in extents) or math.prod(extents) > _MOST:
        raise ValueError(f"a constant with the extents {list(extents)} is not made")


def _made(node: ir.Node, op_type: str) -> np.ndarray:
    import numpy as np

    attributes = node.attributes
    named = attributes["dtype"].as_string() if "dtype" in attributes else "int64"
    kind = (onnx_type(named) or dtype_of(node.outputs[0])).numpy()
    if op_type == "full_int_array":
        return np.array(list(attributes["value"].as_ints()), kind)
    shape = tuple(attributes["shape"].as_ints())
    check_size(*shape)
    if op_type == "full":
        return np.full(shape, attributes["value"].as_tensor().numpy().astype(kind), kind)
    return attributes["values"].as_tensor().numpy().astype(kind).reshape(shape)
