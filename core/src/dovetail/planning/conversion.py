"""Conversions between formats, step by step, and the interface that implements a step."""

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
        kind: Registered name of its implementation: `cast`, `quantize`, `dequantize`, or a vendor's.
        source: The format before the step; None for a step that changes no format, such as a layout change.
        target: The format after the step, or None.
        parameters: Scale and zero point of the quantized format; None if neither side is quantized.
    """

    kind: str
    source: Format | None = None
    target: Format | None = None
    parameters: Parameters | None = None


class NodeMaker(Protocol):
    """Builder of nodes, which enter the graph together; see `dovetail_transforms.rewriting.Replacement`.

    `op.Add(x, y)` is short for `op.make("Add", (x, y))`.
    """

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> ir.Value | Sequence[ir.Value]:
        """Make a node, and return its output, or its outputs if there are several."""

    def constant(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Make an initializer whose name ends in `what`."""


class ConversionKind(Protocol):
    """Builds the nodes for steps of one kind: a change of numeric format, of layout, or of device.

    Registered as `registry.conversion("acme-nhwc", "acme_npu.layout:ToNhwc")`.
    """

    def build(self, op: NodeMaker, value: ir.Value, step: Step) -> ir.Value | Sequence[ir.Value]:
        """Build the nodes that compute the converted value with `op`, and return this value; the graph is not changed.

        New values have a type, and a shape if it is known.
        """


@dataclass(frozen=True, slots=True)
class Join:
    """One conversion, shared by all uses of the value in format `wanted`.

    Attributes:
        value: Name of the converted value.
        held: The format that the value is computed in.
        wanted: The format that it is read in.
        kind: `cast`, `quantize`, `dequantize`, `requantize` or `copy`.
        at: Name of the first user, or of the graph output.
        bytes: Size of the converted value; None if an extent is unknown.
    """

    value: str
    held: Format
    wanted: Format
    kind: str
    at: str
    bytes: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the join as in plans, with `held` and `wanted` as `from` and `to`."""
        ends = {"from": str(self.held), "to": str(self.wanted)}
        return {"value": self.value, **ends, "kind": self.kind, "at": self.at, "bytes": self.bytes}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Join:
        """Parse a mapping of `as_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("from", "to")}
        return cls(held=Format.of(data["from"]), wanted=Format.of(data["to"]), **rest)
