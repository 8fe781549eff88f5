"""Joins: the conversions that a plan lists."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Join"]


@dataclass(frozen=True, slots=True)
class Join:
    """One conversion, shared by all readers of the value in type `wanted`.

    Attributes:
        value: Name of the converted value.
        held: The type it is computed in.
        wanted: The type it is read in.
        kind: `cast`, `quantize`, `dequantize`, `requantize` or `copy`.
        at: Name of the first reader, or of the graph output.
        bytes: Size of the converted value; None if an extent is unknown.
    """

    value: str
    held: str
    wanted: str
    kind: str
    at: str
    bytes: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the join as it stands in plans: `held` and `wanted` as `from` and `to`."""
        data = asdict(self)
        return {"value": self.value, "from": data.pop("held"), "to": data.pop("wanted"), **data}

    @classmethod
    def from_dict(cls, data: dict) -> Join:
        """Parse a mapping of `as_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("from", "to")}
        return cls(held=data["from"], wanted=data["to"], **rest)
