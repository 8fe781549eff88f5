"""A join as a plan lists it: one conversion at a border."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Join"]


@dataclass(frozen=True, slots=True)
class Join:
    """One conversion.

    Attributes:
        value: Name of the value that is converted.
        held: The type it is computed in.
        wanted: The type it is read in.
        kind: `cast`, `quantize`, `dequantize`, `requantize` or `copy`.
        at: Name of the first reader, or of the graph output.
        bytes: Size of the converted value, or None when an extent is not known.
    """

    value: str
    held: str
    wanted: str
    kind: str
    at: str
    bytes: int | None = None

    def as_dict(self) -> dict[str, object]:
        """The form that plans hold: `held` and `wanted` are called `from` and `to`."""
        data = asdict(self)
        return {"value": self.value, "from": data.pop("held"), "to": data.pop("wanted"), **data}

    @classmethod
    def from_dict(cls, data: dict) -> Join:
        """The inverse of `as_dict`."""
        rest = {key: value for key, value in data.items() if key not in ("from", "to")}
        return cls(held=data["from"], wanted=data["to"], **rest)
