"""Placements: the annotation on a node that says which backend computes it, and in which types.

Annotations are the one truth of a plan. They live in `node.meta` and are mirrored to `metadata_props` (which ONNX
files keep) when a model is saved or printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["HOST", "Placement", "get_placement", "kind_of", "origin_of", "set_kind", "set_origin", "set_placement"]

HOST = "host"
_PLACEMENT, _KIND, _ORIGIN = "dovetail.placement", "dovetail.kind", "dovetail.origin"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and in what a node is computed.

    Attributes:
        backend: Name of the backend; `host` when nobody claimed the node.
        precision: Type of its data ports as ONNX calls it in lower case (`float32`, `bfloat16`, `int64`).
        ports: Types of the ports that differ from `precision`, by port name (`{"scales": "float32"}`).
        region: Number of the region it belongs to, or None before regions are formed.
    """

    backend: str = HOST
    precision: str = ""
    ports: Mapping[str, str] = field(default_factory=dict)
    region: int | None = None

    def port_type(self, port: str) -> str:
        """The type of one data port."""
        return self.ports.get(port, self.precision)

    def in_region(self, region: int) -> Placement:
        """The same placement in a region of that number."""
        return Placement(self.backend, self.precision, self.ports, region)


def get_placement(node: ir.Node) -> Placement | None:
    """The placement of `node`, or None if nothing placed it yet."""
    # `data` is the plain dictionary inside: every pass asks this of every node, once per edge.
    return node.meta.data.get(_PLACEMENT)


def set_placement(node: ir.Node, placement: Placement | None) -> None:
    """Place `node`, or take its placement away with None."""
    if placement is None:
        node.meta.pop(_PLACEMENT, None)
    else:
        node.meta[_PLACEMENT] = placement


def kind_of(part: ir.Node | ir.Value) -> str:
    """What a node computes, or a value carries: `data`, `index` or `shape` (`data` until edge kinds are analysed)."""
    return part.meta.get(_KIND, "data")


def set_kind(part: ir.Node | ir.Value, kind: str) -> None:
    """Record what a node computes, or a value carries."""
    part.meta[_KIND] = kind


def origin_of(node: ir.Node) -> tuple[str, ...]:
    """Names of the source model's nodes that this node stands for; its own name if it was never renamed or folded."""
    return node.meta.get(_ORIGIN) or ((node.name,) if node.name else ())


def set_origin(node: ir.Node, names: tuple[str, ...]) -> None:
    """Record the source nodes that `node` stands for."""
    node.meta[_ORIGIN] = tuple(dict.fromkeys(names))
