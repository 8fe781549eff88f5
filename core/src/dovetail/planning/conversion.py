"""Conversions between formats, step by step, and the contract of what carries a step out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


class Step(NamedTuple):
    """One step of a conversion.

    Attributes:
        kind: The name that what carries it out is registered by: `cast`, `quantize`, `dequantize`, or a vendor's.
        source: The format before it; None for a step that changes no format, such as a layout.
        target: The format after it, or None.
        parameters: Scale and zero point of the quantised one of both; None if neither is quantised.
    """

    kind: str
    source: Format | None = None
    target: Format | None = None
    parameters: Parameters | None = None


class NodeMaker(Protocol):
    """Makes nodes that enter the graph when all of them are made, as `dovetail_transforms.rewriting.Replacement` does.

    `op.Add(x, y)` is the same as `op.make("Add", (x, y))`.
    """

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> ir.Value | Sequence[ir.Value]:
        """Make a node of an operator, and return its output, or its outputs if there are several."""

    def constant(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Make an initializer; `what` ends its name."""


class ConversionKind(Protocol):
    """Makes the nodes for steps of one kind: a change of numbers, of layout, or of the device.

    It is registered as `registry.conversion("acme-nhwc", "acme_npu.layout:ToNhwc")`.
    """

    def build(self, op: NodeMaker, value: ir.Value, step: Step) -> ir.Value | Sequence[ir.Value]:
        """Make the nodes that compute the converted value with `op`, and return it; the graph is not changed.

        New values have a type, and a shape where that is known.
        """
