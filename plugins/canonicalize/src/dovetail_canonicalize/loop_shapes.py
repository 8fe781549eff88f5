"""Shapes of what a loop carries, which onnx's inference leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["give_carried_shapes"]


def give_carried_shapes(loop: ir.Node) -> None:
    """Give a Loop's outputs the shapes that its carried values keep.

    onnx leaves them open because a body may change the shape in every round. Where what goes in and what comes out of
    the body have the same known shape, it does not.
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
