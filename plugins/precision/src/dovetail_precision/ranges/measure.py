"""The pass that measures ranges on data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.parts import Parts
from dovetail.passes import Pass

from dovetail_precision.fits import LARGEST
from dovetail_precision.ranges.instrument import instrumented, measurable
from dovetail_precision.ranges.range import NARROW, Range
from dovetail_precision.ranges.reductions import SUMS

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["FILE", "MeasureRanges", "measured_ranges"]

FILE = "ranges.json"
_RANGES = "dovetail.ranges"


@dataclass(frozen=True)
class MeasureRanges(Pass):
    """Run the model on the data, and remember how far each value reaches.

    Given:  data, and a backend whose low precision is float16
    Result: every float32 value has its range over all batches, and those of bodies over all times that they ran;
            results of products and sums also the largest magnitude that adding up can reach. The graph is as before.
            `ranges.json` holds them, by name, and in bodies by path.

    Batches come one by one, and each value is reduced where it is computed: no value is kept. The bodies of a
    SequenceMap are not measured, as they can give out nothing but sequences.
    """

    name = "measure-ranges"
    stage = "analyse"

    def run(self, model: Model, ctx: Context) -> bool:
        """Measure; twice where a bound on a sum leaves the narrow type, once else."""
        if ctx.request.data is None or all(backend.low != NARROW for backend in ctx.backends):
            return False
        try:
            found = _measure(model, ctx, measurable(model), [])
            sums = [node for node in ctx.analysis(Parts, model).nodes if _may_overflow(node, found)]
            for key, reached in _measure(model, ctx, [], sums).items():
                found[key] = found[key].adding_up_to(reached.high)
        except _NotMeasured as error:
            ctx.remark("failure", "", "ranges", f"ranges were not measured: {error}", suggest="see `dovetail verify`")
            return False
        named = [
            (f"{path}/{value.name}" if path else value.name, value)
            for path, graph in model.graphs()
            for value in (*graph.inputs, *(value for node in graph for value in node.outputs))
            if id(value) in found
        ]
        model.ir.meta[_RANGES] = {id(value): (value, found[id(value)]) for _, value in named}
        ctx.count("values measured", len(found))
        document = {name: found[id(value)].as_dict() for name, value in sorted(named, key=itemgetter(0))}
        ctx.files[FILE] = json.dumps(document, indent=1, allow_nan=False) + "\n"
        return False


def measured_ranges(model: Model) -> Mapping[int, tuple[ir.Value, Range]]:
    """What was measured of the values of `model`, by `id`; each stands there too, so that no other takes its `id`."""
    return model.ir.meta.get(_RANGES, {})


class _NotMeasured(DovetailError):
    """No engine of the host takes the model with its measurements."""


def _measure(model: Model, ctx: Context, values: list[ir.Value], sums: list[ir.Node]) -> dict[int, Range]:
    """The ranges of `values`, and of what the magnitudes in `sums` add up to, by the `id` of the value."""
    from dovetail.runtime.engines import engines_of
    from dovetail.runtime.executor import Executor
    from dovetail.verification.data import batches

    if not values and not sums:
        return {}
    engines = engines_of([ctx.host], ctx.registry)
    work = instrumented(model, values, sums)
    found: dict[int, Range] = {}
    try:
        executor = Executor(work.model, engines, {"optimise": "none"}, regions=work.regions)
        for feeds, _ in batches(model, ctx.request.data, ctx.request.seed):
            rows = [row for matrix in executor.run(feeds).values() for row in matrix.tolist()]
            for value, (low, high, smallest) in zip(work.measured, rows, strict=True):
                if high == -math.inf:  # in a body that did not run, or an empty value
                    continue
                reached, key = Range(-low, high, -smallest), id(value)
                found[key] = found[key] | reached if key in found else reached
    except DovetailError as error:
        raise _NotMeasured(error.message) from error
    return found


def _may_overflow(node: ir.Node, found: dict[int, Range]) -> bool:
    """Whether a bound on the sums of `node` leaves the narrow type; only then is it worth measuring them."""
    if node.op_type not in SUMS or node.domain not in ("", "ai.onnx") or id(node.outputs[0]) not in found:
        return False
    extents = _summed(node)
    if extents is None:
        return True
    bound = float(extents)
    for value in node.inputs[: SUMS[node.op_type]]:
        bound *= _magnitude(value, found)
    return not bound <= LARGEST[NARROW]


def _magnitude(value: ir.Value, found: dict[int, Range]) -> float:
    if id(value) in found:
        return found[id(value)].magnitude
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
