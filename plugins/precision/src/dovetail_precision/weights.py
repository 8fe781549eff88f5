"""Weights: stored in the precisions they are read in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.exact_constants import keep_exact
from dovetail.ir.types import dtype_name, float_name, from_name
from dovetail.planning.placement import get_placement

from dovetail_precision.cast_tensor import CastTensor

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph
    from dovetail.passes import Context

    from dovetail_precision.conversions import PlannedTypes

__all__ = ["convert_weights"]

_VECTOR = 65536  # elements
_BOUNDING = frozenset({"Clip", "Max", "Min"})


def convert_weights(flat: FlatGraph, types: PlannedTypes, ctx: Context) -> bool:
    """Give every weight, of the main graph and of all bodies, one version per precision that reads it.

    A weight that is read in one type only is replaced. Nothing is converted here: the new weights convert themselves
    piece by piece while the model is saved or run.

    Returns:
        Whether any weight got a new version.
    """
    changed = False
    accumulates = {backend.name for backend in ctx.backends if backend.accumulate == "float32"}
    overridable = {id(value) for value in flat.graphs[0].inputs}
    for graph in flat.graphs:
        for value in list(graph.initializers.values()):
            if id(value) not in overridable and value.const_value is not None and float_name(value):
                changed |= _convert(graph, value, types, accumulates, ctx)
    return changed


def _convert(graph: ir.Graph, value: ir.Value, types: PlannedTypes, accumulates: set[str], ctx: Context) -> bool:
    present = dtype_name(value.dtype or value.const_value.dtype)
    readers: dict[str, list[tuple[ir.Node, int]]] = {}
    for node, index in value.uses():
        readers.setdefault(types.wanted(node, index) or present, []).append((node, index))
    wanted = [kind for kind in readers if kind != present]
    if not wanted:
        return False
    ctx.count("weights converted", len(wanted))
    if len(readers) == 1 and not value.is_graph_output():
        tensor = CastTensor(value.const_value, from_name(wanted[0]), value.name, _sentinel_share(readers[wanted[0]]))
        value.const_value, value.dtype = tensor, tensor.dtype
        _keep_digits(value, readers[wanted[0]], accumulates, ctx)
        return True
    for kind in wanted:
        version = _version(graph, value, kind, _sentinel_share(readers[kind]))
        _keep_digits(version, readers[kind], accumulates, ctx)
        for node, index in readers[kind]:
            node.replace_input_with(index, version)
    users = {kind: nodes[0][0].name for kind, nodes in readers.items()}
    ctx.remark(
        "passed",
        readers[wanted[0]][0][0],
        "weight-versions",
        f"weight '{value.name}' is stored in {' and '.join(sorted({*wanted, present}))}: it is read in each",
        because=tuple(users.values()),
    )
    return True


def _keep_digits(value: ir.Value, readers: list[tuple[ir.Node, int]], accumulates: set[str], ctx: Context) -> None:
    """Keep what a bias, a scale, a shift or a bound was before it was rounded, for engines that compute in float32.

    Rounded, it would be wrong by the same amount in every element that it is added to or multiplied with. Only vectors
    are kept: the errors of larger constants, weights of products above all, average out.
    """
    import numpy as np

    tensor: CastTensor = value.const_value
    if tensor.source.dtype.name != "FLOAT" or not 0 < tensor.size <= _VECTOR or sum(e > 1 for e in tensor.shape) > 1:
        return
    if not all(get_placement(node).backend in accumulates for node, _ in readers):
        return
    elements = tensor.source.numpy()
    if not np.array_equal(tensor.numpy().astype(np.float32), elements):
        keep_exact(value, elements)
        ctx.count("constants kept in float32")


def _sentinel_share(readers: list[tuple[ir.Node, int]]) -> float:
    """What values at the end of float32 become, as a share of the largest of the new type.

    A bound without a limit becomes the largest. A mask becomes half of it: were it all of it, adding a score would give
    an infinity, and a row of infinities in a Softmax gives NaNs.
    """
    return 1.0 if any(node.op_type in _BOUNDING for node, _ in readers) else 0.5


def _version(graph: ir.Graph, value: ir.Value, kind: str, sentinel_share: float) -> ir.Value:
    import onnx_ir as ir

    name = f"{value.name}_{kind}"
    while name in graph.initializers:
        name += "_"
    tensor = CastTensor(value.const_value, from_name(kind), name, sentinel_share)
    version = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
    graph.register_initializer(version)
    return version
