"""Predicted times of nodes, from the rates of engines that `dovetail profile` measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from dovetail.files import seen
from dovetail.ir import FLOAT32, Format, bodies
from dovetail.passes import Pass
from dovetail.planning import HOST, get_placement, placement_of
from dovetail_runtime.machine import profile_file

from dovetail_precision.costs import CostTable, extents_of, load_cost_table, products_of, this_machine

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import PluginSet

_CONVERSIONS = ("Cast", "DequantizeLinear", "QuantizeLinear")
_VIEWS = ("Constant", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze")
_INTEGERS = Format.of("int8")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FUSED = ("Add", "Clip", "HardSwish", "LeakyRelu", "Mul", "PRelu", "Relu", "Sigmoid", "Sub", "Tanh")
_FIRST = 1  # what a first extent that is open counts as


def profiles_here(backends: Collection[str], plugins: PluginSet) -> dict[str, CostTable]:
    """Return the profiles of backends that were measured on this machine, with the versions installed.

    Raises:
        SchemaError: The file of a profile is invalid.
    """
    files = {backend: file for backend in backends if (file := seen(profile_file(backend))).is_file()}
    if not files:
        return {}
    here = this_machine(plugins)
    tables = {backend: load_cost_table(file) for backend, file in files.items()}
    return {backend: table for backend, table in tables.items() if dict(table.machine) == here}


def nanoseconds(node: ir.Node, held: Format | None, table: CostTable) -> float | None:
    """Return the predicted time of a node of a compiled model.

    None if an extent other than the first is open, or if the node has bodies, which run any number of times.

    Bytes and products take their time in the format of the node; a first extent that is open counts as 1. What engines
    usually fuse takes none: views, elementwise operators after a product, and conversions of weights or between
    quantized nodes.

    Args:
        node: The node.
        held: The format that it computes in; None if it has no floats.
        table: The rates of its engine.
    """
    if node.op_type in _VIEWS or _is_fused(node):
        return 0.0
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(bodies(node)):
        return None
    if any(value.shape is None or not all(isinstance(extent, int) for extent in value.shape[1:]) for value in values):
        return None
    if node.op_type in _CONVERSIONS:
        moved = sum(_elements(value) * _width(value) for value in (*values[:1], *node.outputs))
        return table.start + moved / table.converting(
            _INTEGERS if node.op_type == "DequantizeLinear" else FLOAT32,
            _INTEGERS if node.op_type == "QuantizeLinear" else FLOAT32,
        )
    format_ = held or FLOAT32
    if format_.quantized and format_.dtype.bitwidth > _INTEGERS.dtype.bitwidth:
        format_ = _INTEGERS  # a product whose sums are stored; its operands have 8 bits
    moved = format_.dtype.bitwidth / 8 * sum(map(_elements, values))
    return moved / table.moving(node.op_type, format_) + products_of(node, _FIRST) / table.multiplying(format_)


def _is_fused(node: ir.Node) -> bool:
    """Check whether engines usually compute a node as part of another one."""
    source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    if node.op_type == "DequantizeLinear":
        return source is None or all(_is_quantized(reader) for reader in node.outputs[0].consumers())
    if source is None:
        return False
    if node.op_type == "QuantizeLinear":
        return _is_quantized(source)
    return node.op_type in _FUSED and source.op_type in (*_PRODUCTS, *_FUSED) and len(source.outputs[0].uses()) == 1


def _is_quantized(node: ir.Node) -> bool:
    place = get_placement(node)
    return place is not None and place.precision is not None and place.precision.quantized


def _elements(value: ir.Value) -> int:
    return math.prod(extents_of(value, _FIRST))


def _width(value: ir.Value) -> float:
    return (value.dtype.bitwidth if value.dtype is not None else 32) / 8


class PredictTimes(Pass):
    """Predict the time of a quantized plan, and remark if floats on the host would take less.

    The backends and the host have to be profiled on this machine (`dovetail profile`), and all extents but the first
    known; otherwise there is no prediction.
    """

    name = "predict-times"
    stage = "join"
    after = ("join", "float-borders")

    def run(self, model: Model, ctx: Context) -> bool:
        """Compare the sums of all nodes; the graph is not changed."""
        nodes = list(model.graph)
        if ctx.plugins is None or not any(map(_is_quantized, nodes)):
            return False
        backends = {placement_of(node).backend for node in nodes} | {HOST}
        tables = profiles_here(backends, ctx.plugins)
        if tables.keys() != backends:
            return False
        pairs = [(node, placement_of(node)) for node in nodes]
        planned = [nanoseconds(node, place.precision, tables[place.backend]) for node, place in pairs]
        floats = [nanoseconds(node, None, tables[HOST]) for node in nodes if node.op_type not in _CONVERSIONS]
        if None in planned or None in floats:
            return False
        mixed, plain = (sum(time for time in times if time is not None) / 1e6 for times in (planned, floats))
        if mixed < plain:
            return False
        why = f"the profiles of this machine predict {mixed:.3g} ms, and {plain:.3g} ms in float32 on host"
        remedy = "`dovetail tune`, which measures what is fastest"
        facts = {"planned_ms": round(mixed, 4), "float32_ms": round(plain, 4)}
        ctx.remark(
            "analysis", "", "slower-integers", f"integers are not faster here: {why}", suggest=remedy, facts=facts
        )
        return False
