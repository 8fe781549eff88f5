"""Operators that only a device's own tools know, such as plugins of TensorRT: no engine of the host runs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.planning import get_placement, operator_name
from dovetail.plugin import EngineError
from dovetail_onnx.signatures import Signatures
from dovetail_schemas.operators import is_operator

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_runtime.engines import Engines


def foreign(nodes: Iterable[ir.Node], model: Model) -> Iterator[ir.Node]:
    """Yield the nodes whose operators neither ONNX, ONNX Runtime, an operator file nor the model define.

    ONNX Runtime has schemas for some operators of TensorRT in the default domain, and computes none of them.
    """
    signature = Signatures(model.ir.opset_imports)
    for node in nodes:
        is_defined = is_operator(node.domain, node.op_type) and signature(node) is not None
        if not is_defined and node.op_identifier() not in model.ir.functions:
            yield node


def check_runs_here(model: Model, engines: Engines, preferred: Mapping[str, str]) -> None:
    """Check that no operator needs an engine that is not here.

    Args:
        model: The placed model.
        engines: The engines of every backend.
        preferred: The engines that are here, by backend.

    Raises:
        EngineError: A node does; the error names it.
    """
    placed = ((node, get_placement(node)) for node in model.nodes())
    away = [node for node, placement in placed if placement is not None and placement.backend not in preferred]
    node = next(foreign(away, model), None) if len(preferred) < len(engines) else None
    placement = get_placement(node) if node is not None else None
    if node is None or placement is None or not engines.get(placement.backend):
        return
    own = engines[placement.backend][0]
    raise EngineError(
        f"node '{node.name}': {operator_name(node.domain, node.op_type)} is an operator of {placement.backend} alone, "
        f"and {own.name} is not here: {own.available().why}",
        "--target-only compiles for the device; or cut the node out of the model",
        node.name or "",
    )


def way_out(nodes: Iterable[ir.Node], model: Model) -> str:
    """Return what to do if the host's engines refuse nodes; empty if they know all of the operators."""
    node = next(foreign(nodes, model), None)
    if node is None:
        return ""
    operator = operator_name(node.domain, node.op_type)
    return (
        f"only a device runs {operator} ('{node.name}'), so nothing can be measured here: with --target-only, leave "
        "--data and goals out, or end the model before it"
    )
