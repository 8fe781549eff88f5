"""Conversions between formats, step by step, and the contract of what carries a step out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.passes.replacement import Replacement
    from dovetail.planning.holdings import Parameters

__all__ = ["ConversionKind", "Step"]


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


class ConversionKind(Protocol):
    """Carries out steps of one kind: a change of numbers, of layout, or of the device.

    It is registered as `registry.conversion("acme-nhwc", "acme_npu.layout:ToNhwc")`.
    """

    def build(self, op: Replacement, value: ir.Value, step: Step) -> ir.Value | Sequence[ir.Value]:
        """Make the nodes that compute the converted value with `op`, and return it; the graph is not changed."""
