"""The values that ONNX's control-flow operators pass to their bodies and take from them, pair by pair.

Pairs of one type only: the slices that a Scan hands to its body, say, have the element type of the scanned tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir


class BodyFlow(NamedTuple):
    """A value that a control-flow operator passes into another one without changing its type.

    Attributes:
        what: The pair in messages: `carried value`.
        one: A value of the node or of a body; None if it is omitted.
        other: The value that it becomes.
    """

    what: str
    one: ir.Value | None
    other: ir.Value | None


def body_flows(node: ir.Node) -> Iterable[BodyFlow]:
    """Return the pairs of `node`; an empty tuple if it is not control flow."""
    flows = _FLOWS.get(node.op_type)
    return flows(node) if flows is not None and node.domain in ("", "ai.onnx") else ()


def _if(node: ir.Node) -> Iterator[BodyFlow]:
    for branch in ("then_branch", "else_branch"):
        body = node.attributes[branch].as_graph()
        for inner, outer in zip(body.outputs, node.outputs, strict=False):
            yield BodyFlow(f"{branch} and output", inner, outer)


def _loop(node: ir.Node) -> Iterator[BodyFlow]:
    body = node.attributes["body"].as_graph()
    for index in range(len(node.inputs) - 2):
        yield BodyFlow("carried value", node.inputs[2 + index], body.inputs[2 + index])
        yield BodyFlow("carried value", body.inputs[2 + index], body.outputs[1 + index])
    for inner, outer in zip(body.outputs[1:], node.outputs, strict=False):
        yield BodyFlow("body and output", inner, outer)


def _scan(node: ir.Node) -> Iterator[BodyFlow]:
    body = node.attributes["body"].as_graph()
    for outer, inner in zip(node.inputs, body.inputs, strict=False):
        yield BodyFlow("input and body", outer, inner)
    for inner, outer in zip(body.outputs, node.outputs, strict=False):
        yield BodyFlow("body and output", inner, outer)


_FLOWS = {"If": _if, "Loop": _loop, "Scan": _scan}
