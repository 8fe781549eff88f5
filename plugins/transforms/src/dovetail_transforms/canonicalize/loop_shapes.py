"""Shapes of loop-carried values, which onnx does not infer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def set_carried_shapes(loop: ir.Node) -> None:
    """Set the shapes of a Loop's outputs whose carried value has a constant shape.

    onnx leaves them unknown because a body may change the shape in every iteration. It does not if the initial value
    and the body's output have the same static shape.
    """
    body = loop.attributes["body"].as_graph() if "body" in loop.attributes else None
    if body is None:
        return
    for index, output in enumerate(loop.outputs[: len(loop.inputs) - 2]):
        initial, carried = loop.inputs[2 + index], body.outputs[1 + index]
        if initial is None or output.shape is not None or initial.shape is None or not initial.shape.is_static():
            continue
        if carried.shape is not None and carried.shape == initial.shape:
            output.shape = initial.shape
            if output.type is None:
                output.type = initial.type
