"""Entries of a plan: nodes of the result, and nodes of the source model that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.planning.identity import operator_name
from dovetail.planning.placement import Placement

if TYPE_CHECKING:
    from dovetail.ir.formats import Format


VERSION = 2
"""Version of the format in which plans are saved."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node of a plan, identified by `output` (with the body path), or by `key` in another export of the model."""

    name: str
    output: str
    key: str
    op_type: str
    backend: str
    precision: Format | None
    domain: str = ""
    origin: tuple[str, ...] = ()
    region: int | None = None
    kind: str = "data"
    ports: Mapping[str, Format] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        """The placement of the node."""
        return Placement(self.backend, self.precision, dict(self.ports), self.region)

    @property
    def operator(self) -> str:
        """The operator with its domain, as in selectors: `Conv`, `com.acme::FusedMlp`."""
        return operator_name(self.domain, self.op_type)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as a mapping, without fields that have their default."""
        data: dict[str, Any] = {"name": self.name, "output": self.output, "key": self.key, "op_type": self.op_type}
        if self.domain:
            data["domain"] = self.domain
        data |= {"backend": self.backend, "precision": str(self.precision or "")}
        if self.region is not None:
            data["region"] = self.region
        return data | self.unusual()

    def unusual(self) -> dict[str, Any]:
        """Return origin, kind and ports, where they differ from their defaults."""
        data: dict[str, Any] = {}
        if self.origin and self.origin != (self.name,):
            data["origin"] = list(self.origin)
        if self.kind != "data":
            data["kind"] = self.kind
        if self.ports:
            data["ports"] = {port: str(format_) for port, format_ in sorted(self.ports.items())}
        return data


class SourceNode(NamedTuple):
    """A node of the source model that is not in the result, with the reason."""

    name: str
    operator: str
    fate: str
