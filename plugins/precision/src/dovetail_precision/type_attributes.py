"""Types that stand in attributes: written as the readers want them, instead of converted behind the node.

Such are the value of ConstantOfShape, `dtype` of EyeLike, and `to` of a Cast from integers. What draws random numbers
is left alone: in another type it would draw others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.ir.types import FLOATS, dtype_name

from dovetail_precision.fits import misfit
from dovetail_precision.flows import find_flows

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["follow_readers", "rewrite_carried_types"]

_ATTRIBUTES = {"ConstantOfShape": "value", "EyeLike": "dtype", "Cast": "to"}


def follow_readers(problem: TypingProblem) -> None:
    """Let a result whose type stands in an attribute have the low type, if all of its readers read it in that."""
    for flow in find_flows(problem):
        variable = flow.producer
        if variable is None or flow.kept or flow.followers or not _can_follow(variable):
            continue
        if {reader.chosen for reader in flow.readers} == {variable.low}:
            variable.chosen, variable.policy = variable.low, "follow-consumer"
            variable.why = f"{variable.low}, as all of its readers want it"


def _can_follow(variable: Variable) -> bool:
    node = variable.node
    if node.domain not in ("", "ai.onnx") or node.op_type not in _ATTRIBUTES or variable.inputs or variable.listed:
        return False
    if variable.policy not in ("follow-consumer", "pass") or variable.chosen != "float32":
        return False
    if variable.low == variable.chosen or variable.low not in variable.allowed:
        return False
    if node.op_type == "Cast":
        kind = node.inputs[0].dtype
        return kind is not None and (kind.is_integer() or kind.name == "BOOL")
    filled = node.attributes.get("value")
    return filled is None or not misfit(filled.as_tensor(), variable.low)


def rewrite_carried_types(nodes: Iterable[ir.Node], ctx: Context) -> bool:
    """Write the type that a result has by now into the attribute that says it.

    Returns:
        Whether any attribute changed.
    """
    changed = False
    for node in nodes:
        name = _ATTRIBUTES.get(node.op_type)
        if name is None or node.domain not in ("", "ai.onnx"):
            continue
        dtype = node.outputs[0].dtype
        if dtype is None or dtype_name(dtype) not in FLOATS or _carried(node, name) == dtype:
            continue
        node.attributes[name] = _attribute(node, name, dtype)
        why = f"{name} says {dtype_name(dtype)} now, which saves a conversion"
        ctx.remark("passed", node, "carried-type", why)
        changed = True
    return changed


def _carried(node: ir.Node, name: str) -> ir.DataType | None:
    """The type that the attribute says; where there is none, what the operator does without it."""
    import onnx_ir as ir

    attribute = node.attributes.get(name)
    if name == "value":
        return attribute.as_tensor().dtype if attribute is not None else ir.DataType.FLOAT
    return ir.DataType(attribute.as_int()) if attribute is not None else node.inputs[0].dtype


def _attribute(node: ir.Node, name: str, dtype: ir.DataType) -> ir.Attr:
    import numpy as np
    import onnx_ir as ir

    if name != "value":
        return ir.AttrInt64(name, dtype.value)
    filled = node.attributes.get(name)
    array = filled.as_tensor().numpy() if filled is not None else np.zeros(1)
    return ir.AttrTensor(name, ir.tensor(array.astype(dtype.numpy())))
