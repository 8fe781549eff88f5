"""Compute operators in float32 whose float16 kernels in ONNX Runtime's CPU provider fail at run time.

For operators without a float16 kernel ONNX Runtime inserts casts itself; these have one that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import graph_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.fresh_names import FreshNames


# By operator, the reductions that fail (1.31).
_FAILING = {"ScatterND": ("add", "mul", "max", "min"), "ScatterElements": ("add", "mul")}
_FLOAT, _FLOAT16 = 1, 10  # onnx.TensorProto.DataType


def fails(node: ir.Node) -> bool:
    """Whether the float16 kernel of `node` fails."""
    if node.op_type not in _FAILING or node.domain not in ("", "ai.onnx"):
        return False
    low = node.outputs[0].dtype is not None and node.outputs[0].dtype.value == _FLOAT16
    return low and node.attributes.get_string("reduction", "none") in _FAILING[node.op_type]


def widen(node: ir.Node, names: FreshNames) -> None:
    """Compute `node` in float32: casts in front of its float16 inputs and behind its result."""
    import onnx_ir as ir

    result = node.outputs[0]
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype == result.dtype:
            cast = ir.node("Cast", [value], {"to": _FLOAT}, name=names.fresh(f"{node.name}/wide_{index}"))
            cast.outputs[0].name, cast.outputs[0].type = cast.name, ir.TensorType(ir.DataType.FLOAT)
            node.prepend(cast)
            node.replace_input_with(index, cast.outputs[0])
    back = ir.node("Cast", [result], {"to": _FLOAT16}, name=names.fresh(f"{node.name}/narrow"))
    given = back.outputs[0]
    given.type, given.shape = result.type, result.shape
    for reader, index in list(result.uses()):
        if reader is not back:
            reader.replace_input_with(index, given)
    graph = graph_of(node)
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = given
    given.name, result.name = result.name, names.fresh(f"{node.name}/wide")
    result.type = ir.TensorType(ir.DataType.FLOAT)
    node.append(back)
