"""Attributes that hold a type: rewriting them saves a cast after the node.

These are the value of ConstantOfShape, `to` of a Cast from integers, and `dtype` of EyeLike and of random operators.
Random operators with a seed are left alone: in another type they would draw other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from dovetail.ir import FLOATS, dtype_name, input_of, is_onnx

from dovetail_precision.constant_range import misfit

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.passes import Context


TAKES_ANY = frozenset({"Cast", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose output type does not depend on the input type."""

# Gather is excluded: it reads weights, and its result is data.
_DATA_MOVEMENT = frozenset(
    {"Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
_FILLS = frozenset({"ConstantOfShape", "EyeLike"})

_ATTRIBUTES = {
    "Bernoulli": "dtype",
    "Cast": "to",
    "ConstantOfShape": "value",
    "EyeLike": "dtype",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "RandomUniformLike": "dtype",
}


def holds_type(node: ir.Node, low: Format) -> bool:
    """Check whether an attribute decides the type of the results of `node`, and its value fits the low format."""
    if node.op_type not in _ATTRIBUTES or not is_onnx(node):
        return False
    if node.op_type == "Cast":
        kind = input_of(node, 0).dtype
        return kind is not None and (kind.is_integer() or kind.name == "BOOL")
    filled = node.attributes.get("value")
    if "seed" in node.attributes or not low.is_float:
        return False
    return filled is None or not misfit(filled.as_tensor(), low.element)


def rounds_integers(node: ir.Node) -> bool:
    """Check whether `node` casts integers of more than 8 bits to floats of 16 bits, which may round them.

    Its type is part of what the source computes: in float32, a value that is cast back would be another.
    """
    if node.op_type != "Cast" or not is_onnx(node):
        return False
    kind, result = input_of(node, 0).dtype, node.outputs[0].dtype
    if kind is None or result is None:
        return False
    return kind.is_integer() and kind.bitwidth > 8 and result.is_floating_point() and result.bitwidth < 32


def select_of(node: ir.Node) -> Literal["", "pick", "fill", "move"]:
    """Return how `node` takes part in selects of constants; empty if it does not."""
    operator = node.op_type
    if not is_onnx(node):
        return ""
    if operator == "Where":
        return "pick"
    if operator in _DATA_MOVEMENT:
        return "move"
    return "fill" if operator in _FILLS else ""


def rewrite_type_attributes(nodes: Iterable[ir.Node], ctx: Context) -> bool:
    """Write the assigned type of each result into the attribute that decides it.

    Returns:
        Whether any attribute changed.
    """
    changed = False
    for node in nodes:
        name = _ATTRIBUTES.get(node.op_type)
        if name is None or not is_onnx(node):
            continue
        dtype = node.outputs[0].dtype
        if dtype is None or dtype_name(dtype) not in FLOATS or _carried(node, name) == dtype:
            continue
        node.attributes[name] = _attribute(node, name, dtype)
        why = f"attribute '{name}' is now {dtype_name(dtype)}, which saves a cast"
        ctx.remark("passed", node, "type-attribute", why)
        changed = True
    return changed


def _carried(node: ir.Node, name: str) -> ir.DataType | None:
    """Return the type given by the attribute, or the operator's default if it is absent."""
    import onnx_ir as ir

    attribute = node.attributes.get(name)
    if name == "value":
        return attribute.as_tensor().dtype if attribute is not None else ir.DataType.FLOAT
    if attribute is not None:
        return ir.DataType(attribute.as_int())
    return input_of(node, 0).dtype if node.inputs else ir.DataType.FLOAT


def _attribute(node: ir.Node, name: str, dtype: ir.DataType) -> ir.Attr:
    import numpy as np
    import onnx_ir as ir

    if name != "value":
        return ir.AttrInt64(name, dtype.value)
    filled = node.attributes.get(name)
    array = filled.as_tensor().numpy() if filled is not None else np.zeros(1)
    return ir.AttrTensor(name, ir.tensor(array.astype(dtype.numpy())))
