"""The backend's name, its nodes, and what its options mean: shared by its passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import FLOAT32
from dovetail.planning import Placement, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend
    from dovetail_transforms import NewNodes


BACKEND = "cpu-int8"

HERE = Placement(BACKEND, FLOAT32)
"""The placement of nodes that its passes insert."""

_ALONE = ("int8", "int8-blocks", "int4", "int2")


def is_here(node: ir.Node) -> bool:
    """Check whether `node` is placed on this backend."""
    placement = get_placement(node)
    return placement is not None and placement.backend == BACKEND


def new_nodes(model: Model, ctx: Context) -> NewNodes:
    """Return what inserts nodes that are placed here."""
    from dovetail_transforms import NewNodes

    return NewNodes(model, ctx, HERE)


def weights_alone(backend: Backend) -> bool:
    """Check whether the options of `cpu-int8` quantize weights, and no activations."""
    return backend.chosen.get("weights") in _ALONE


def level_of(backend: Backend) -> int:
    """Return the requested accuracy level of MatMulNBits; 4 if measurement decides whether that suffices."""
    return 1 if backend.chosen["accuracy_level"] == "1" else 4
