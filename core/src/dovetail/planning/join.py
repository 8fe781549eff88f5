"""Joins: the conversions that a plan lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dovetail.ir.formats import Format


def conversion_kind(held: Format, wanted: Format) -> str:
    """Return the kind of the conversion between two formats: `cast`, `quantize`, `dequantize` or `requantize`."""
    if held.quantised:
        return "requantize" if wanted.quantised else "dequantize"
    return "quantize" if wanted.quantised else "cast"


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
