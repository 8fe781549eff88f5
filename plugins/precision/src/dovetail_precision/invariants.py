"""Invariants of formats after the stages `type` and `join`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, Format, float_format
from dovetail.planning import get_placement
from dovetail.plugin import Invariant
from dovetail_onnx.signatures import Signatures, input_name, output_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Placement


class Typed(Invariant):
    """Checked after `type`."""

    stage = "type"
    text = "every float port has a format"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield float ports without a format."""
        for node, placement in _placed(model, ctx):
            if placement.precision is None:  # it is the format of every port that has none of its own
                for port, _, format_ in _float_ports(node, placement, model):
                    if format_ is None:
                        yield f"port '{port}' of '{node.name}' has none"


class Joined(Invariant):
    """Checked after `join`."""

    stage = "join"
    text = "every float has the type in which its ports compute and read it"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield ports whose type differs from that of their value."""
        for node, placement in _placed(model, ctx):
            if not placement.ports and not _differs(node, placement.precision):
                continue
            for port, value, format_ in _float_ports(node, placement, model):
                if format_ is not None and not format_.quantized and format_.dtype != value.dtype:
                    yield f"'{value.name}' is {value.dtype} at port '{port}' of '{node.name}', which is {format_}"


def _placed(model: Model, ctx: Context) -> Iterator[tuple[ir.Node, Placement]]:
    for node in ctx.analysis(FlatGraph, model).nodes:
        placement = get_placement(node)
        if placement is not None:
            yield node, placement


def _differs(node: ir.Node, format_: Format | None) -> bool:
    """Check whether a node has a float of another format: few do, and the names of ports take time."""
    return any(float_format(value) not in (None, format_) for value in (*node.inputs, *node.outputs))


def _float_ports(node: ir.Node, placement: Placement, model: Model) -> Iterator[tuple[str, ir.Value, Format | None]]:
    """Yield the ports of a node with a float value, and their formats."""
    signature = Signatures(model.graph.opset_imports)(node)
    ends = [(value, input_name(at, signature)) for at, value in enumerate(node.inputs) if value is not None]
    ends += [(value, output_name(at, signature)) for at, value in enumerate(node.outputs)]
    for value, port in ends:
        if float_format(value) is not None:
            yield port, value, placement.port_format(port)
