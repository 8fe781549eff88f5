"""Placements: annotations on nodes with backend and formats.

Annotations are the single source of truth of a plan. They live in `node.meta`, and are mirrored to `metadata_props`,
which ONNX files preserve, when a model is saved or printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model


HOST = "host"
_PLACEMENT, _KIND = "dovetail.placement", "dovetail.kind"

PART = "dovetail.part"
"""Metadata key of nodes that together replace one node of the plan; coverage counts them as one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The backend and the formats of a node.

    Attributes:
        backend: Name of the backend; `host` if no backend claimed the node.
        precision: Format of its data ports; None if the node is not typed yet or has no value of a known type.
        ports: Formats of ports that differ from `precision`, by port name; empty if none does.
        region: Number of its region; None before regions are formed.
    """

    backend: str = HOST
    precision: Format | None = None
    ports: Mapping[str, Format] = field(default_factory=dict)
    region: int | None = None

    def port_format(self, port: str) -> Format | None:
        """Return the format of a data port."""
        return self.ports.get(port, self.precision)


def get_placement(node: ir.Node) -> Placement | None:
    """Return the placement of `node`; None if it is not placed yet."""
    # `data` is the dict that `meta` wraps: this is called once per edge, and the wrapper is slow.
    return node.meta.data.get(_PLACEMENT)


def placement_of(node: ir.Node) -> Placement:
    """Return the placement of `node`, which must be placed.

    Raises:
        ValueError: The node is not placed.
    """
    placement = get_placement(node)
    if placement is None:
        raise ValueError(f"{node.name or node.op_type} is not placed")
    return placement


def set_placement(node: ir.Node, placement: Placement | None) -> None:
    """Set the placement of `node`, or remove it with None."""
    if placement is None:
        node.meta.pop(_PLACEMENT, None)
    else:
        node.meta.data[_PLACEMENT] = placement


def placed_backends(model: Model) -> set[str]:
    """Return the backends in the placements of a model, parsed from its metadata if not loaded yet."""
    if model.dialect is not None and not any(get_placement(node) for node in model.graph):
        model.dialect.read_annotations(model)
    return {placement.backend for node in model.graph if (placement := get_placement(node))}


def kind_of(part: ir.Node | ir.Value) -> str:
    """Return the kind of a node or value: `data`, `index` or `shape`; `data` until edge kinds are analyzed."""
    kind: str = part.meta.get(_KIND, "data")
    return kind


def set_kind(part: ir.Node | ir.Value, kind: str) -> None:
    """Set the kind of a node or value."""
    part.meta[_KIND] = kind
