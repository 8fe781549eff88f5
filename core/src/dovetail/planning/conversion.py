"""Conversions between formats, step by step, and the contract of what carries a step out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dovetail.ir.formats import Format

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.planning.quantized_value import Parameters


class Step(NamedTuple):
    """One step of a conversion.

    Attributes:
        kind: The name that what carries it out is registered by: `cast`, `quantize`, `dequantize`, or a vendor's.
        source: The format before it; None for a step that changes no format, such as a layout.
        target: The format after it, or None.
        parameters: Scale and zero point of the quantized one of both; None if neither is quantized.
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


def conversion_kind(held: Format, wanted: Format) -> str:
    """Return the kind of the conversion between two formats: `cast`, `quantize`, `dequantize` or `requantize`."""
    if held.quantized:
        return "requantize" if wanted.quantized else "dequantize"
    return "quantize" if wanted.quantized else "cast"


@dataclass(frozen=True, slots=True)
class Join:
    """One conversion, shared by all readers of the value in format `wanted`.

    Attributes:
        value: Name of the converted value.
        held: The format it is computed in.
        wanted: The format it is read in.
        kind: `cast`, `quantize`, `dequantize`, `requantize` or `copy`.
        at: Name of the first reader, or of the graph output.
        bytes: Size of the converted value; None if an extent is unknown.
    """

    value: str
    held: Format
    wanted: Format
    kind: str
    at: str
    bytes: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the join as it stands in plans: `held` and `wanted` as `from` and `to`."""
        ends = {"from": str(self.held), "to": str(self.wanted)}
        return {"value": self.value, **ends, "kind": self.kind, "at": self.at, "bytes": self.bytes}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Join:
        """Parse a mapping of `as_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("from", "to")}
        return cls(held=Format.of(data["from"]), wanted=Format.of(data["to"]), **rest)
