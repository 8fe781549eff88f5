"""The pass that measures ranges on data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Pass

from dovetail_precision.fits import LARGEST
from dovetail_precision.ranges.instrument import SUMS, instrumented, measurable
from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["FILE", "MeasureRanges", "measured_ranges"]

FILE = "ranges.json"
_RANGES = "dovetail.ranges"
_NARROW = "float16"


@dataclass(frozen=True)
class MeasureRanges(Pass):
    """Run the model on the data, and remember how far each value reaches.

    Given:  data, and a backend whose low precision is float16
    Result: every float32 value of the main graph has its range over all batches, results of products and sums also the
            largest magnitude that adding up can reach; the graph is as before. `ranges.json` holds them.

    Batches come one by one, and each value is reduced where it is computed: no value is kept. Bodies of control flow
    are not measured.
    """

    name = "measure-ranges"
    stage = "analyse"

    def run(self, model: Model, ctx: Context) -> bool:
        """Measure; twice where a bound on a sum leaves the narrow type, once else."""
        if ctx.request.data is None or all(backend.low != _NARROW for backend in ctx.backends):
            return False
        values = measurable(model)
        try:
            found = _measure(model, ctx, [value.name for value in values], [])
            sums = [node for node in model.graph if _may_overflow(node, found)]
            found |= {
                name: found[name] | reached if name in found else reached
                for name, reached in _measure(model, ctx, [], [node.outputs[0].name for node in sums]).items()
            }
        except _NotMeasured as error:
            ctx.remark("failure", "", "ranges", f"ranges were not measured: {error}", suggest="see `dovetail verify`")
            return False
        model.ir.meta[_RANGES] = {id(value): (value, found[value.name]) for value in values if value.name in found}
        ctx.count("values measured", len(found))
        document = {name: found[name].as_dict() for name in sorted(found)}
        ctx.files[FILE] = json.dumps(document, indent=1, allow_nan=False) + "\n"
        return False


def measured_ranges(model: Model) -> Mapping[int, tuple[ir.Value, Range]]:
    """What was measured of the values of `model`, by `id`; each stands there too, so that no other takes its `id`."""
    return model.ir.meta.get(_RANGES, {})


class _NotMeasured(DovetailError):
    """No engine of the host takes the model with its measurements."""


def _measure(model: Model, ctx: Context, values: list[str], sums: list[str]) -> dict[str, Range]:
    from dovetail.planning.placement import HOST
    from dovetail.runtime.engines import engines_of
    from dovetail.runtime.executor import Executor
    from dovetail.verification.data import batches

    if not values and not sums:
        return {}
    engines = engines_of([ctx.host], ctx.registry)
    try:
        executor = Executor(instrumented(model, values, sums), engines, backend_of=lambda node: HOST)
    except DovetailError as error:
        raise _NotMeasured(error.message) from error
    found: dict[str, Range] = {}
    for feeds, _ in batches(model, ctx.request.data, ctx.request.seed):
        try:
            results = executor.run(feeds)
        except DovetailError as error:
            raise _NotMeasured(error.message) from error
        for name, numbers in results.items():
            value, _, what = name.rpartition("/")
            low, high, smallest = map(float, numbers) if what == "range" else (0.0, 0.0, math.inf)
            reached = Range(low, high, smallest)
            reached = reached.adding_up_to(float(numbers[0])) if what == "sum" else reached
            found[value] = found[value] | reached if value in found else reached
    return found


def _may_overflow(node: ir.Node, found: dict[str, Range]) -> bool:
    """Whether a bound on the sums of `node` leaves the narrow type; only then is it worth measuring them."""
    if node.op_type not in SUMS or node.domain not in ("", "ai.onnx") or node.outputs[0].name not in found:
        return False
    extents = _summed(node)
    if extents is None:
        return True
    bound = float(extents)
    for value in node.inputs[: SUMS[node.op_type]]:
        bound *= _magnitude(value, found)
    return not bound <= LARGEST[_NARROW]


def _magnitude(value: ir.Value, found: dict[str, Range]) -> float:
    if value.name in found:
        return found[value.name].magnitude
    if value.const_value is None:
        return math.inf
    array = value.const_value.numpy()
    return float(max(array.max(), -array.min())) if array.size else 0.0


def _summed(node: ir.Node) -> int | None:
    """How many terms a sum of `node` has; None where that is open."""
    if node.op_type.startswith("Reduce"):
        shape, result = node.inputs[0].shape, node.outputs[0].shape
        if shape is None or result is None or not shape.is_static() or not result.is_static():
            return None
        return math.prod(shape.numpy()) // max(math.prod(result.numpy()), 1)
    shape = node.inputs[1].shape
    if shape is None or not shape.is_static() or not len(shape):
        return None
    extents = shape.numpy()
    if node.op_type == "MatMul":
        return extents[-2] if len(extents) > 1 else extents[0]
    if node.op_type == "Gemm":
        return extents[1 if node.attributes.get_int("transB", 0) else 0]
    return math.prod(extents) // extents[1 if node.op_type == "ConvTranspose" else 0]
