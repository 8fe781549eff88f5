"""The `measure-ranges` pass: measure value ranges on data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, input_of, is_onnx, name_of
from dovetail.passes import Pass

from dovetail_precision.constant_range import LARGEST_FINITE
from dovetail_precision.ranges.instrument import (
    ADDITIONS,
    MEANS,
    SUMS,
    Instrumented,
    Reductions,
    instrumented,
    measurable,
)
from dovetail_precision.ranges.range import LOW_TYPES, NARROW, Range, range_of_array

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.executor import RegionExecutor


class PartialSums:
    """Measures partial sums of single nodes, each with a separate small model that is loaded once."""

    def __init__(self, model: Model, engines: Mapping[str, Sequence[GuardedEngine]]):
        self._model = model
        self._engines = engines
        self._executors: dict[int, RegionExecutor] = {}

    def largest(self, node: ir.Node, values: Mapping[str, np.ndarray]) -> float:
        """Return the largest magnitude that a partial sum can reach in any order of summation.

        Args:
            node: A node of the main graph whose operator is one of `SUMS`.
            values: Its inputs by name; constants may be left out.
        """
        executor = self._executors.get(id(node)) or self._executors.setdefault(id(node), self._executor(node))
        given = [value for value in node.inputs if value is not None and _is_fed(value) and value.name in values]
        wanted = set(map(name_of, given))
        (found,) = executor.run({name: values[name] for name in wanted}).values()
        return float(found.max(initial=0.0))

    def _executor(self, node: ir.Node) -> RegionExecutor:
        import onnx_ir as ir
        from dovetail.ir import Model
        from dovetail_runtime.executor import RegionExecutor

        copies: dict[str, ir.Value] = {}
        for value in node.inputs:
            if value is not None and value.name not in copies:
                constant = value.const_value if value.is_initializer() else None
                shape = value.shape if constant is not None else None
                copies[name_of(value)] = ir.Value(name=value.name, type=value.type, shape=shape, const_value=constant)
        fed = {value.name for value in node.inputs if value is not None and _is_fed(value)}
        graph = ir.Graph(
            [copy for name, copy in copies.items() if name in fed],
            [],
            nodes=[],
            initializers=[copy for copy in copies.values() if copy.const_value is not None],
            opset_imports=dict(self._model.ir.opset_imports),
            name="sum",
        )
        work = Model(ir.Model(graph, ir_version=self._model.ir.ir_version))
        inputs = [copies[name_of(value)] if value is not None else None for value in node.inputs]
        copy = ir.node(node.op_type, inputs[: SUMS[node.op_type]], dict(node.attributes), num_outputs=1)
        copy.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            copy.replace_input_with(index, value)
        row = Reductions(work).sum_of(graph, copy)
        for index in range(len(inputs)):
            copy.replace_input_with(index, None)
        row.type, row.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([3])
        graph.outputs.append(row)
        return RegionExecutor(work, self._engines, {"optimize": "none"})


def _is_fed(value: ir.Value) -> bool:
    """Whether runs give a value, or may: it is no constant, or the default of an input."""
    return not value.is_initializer() or value.is_graph_input()


FILE = "ranges.json"
_RANGES = "dovetail.ranges"


class MeasureRanges(Pass):
    """Run the model on the data and record the range of every value.

    Given:  data, and a backend whose low precision is float16 or bfloat16
    Result: every float32 value has its range and root mean square over all batches, values in bodies over all
            iterations; for float16, results of products and sums also have the largest magnitude of a partial sum.
            The graph does not change. `ranges.json` lists the ranges by value name, in bodies with the body path.

    The model runs batch by batch and part by part, and values are discarded after reduction. For bfloat16, which no
    value leaves, values in loops are measured on the first batch only: their reductions take many times as long as the
    iterations themselves. Bodies of a SequenceMap are not measured: they can return only sequences. Nothing is measured
    where the request has every node high.
    """

    name = "measure-ranges"
    stage = "analyze"

    def run(self, model: Model, ctx: Context) -> bool:
        """Measure, with a second run if sums in bodies may overflow the narrow type."""
        if ctx.request.data is None or not any(backend.low in LOW_TYPES for backend in ctx.backends):
            return False
        if "*" in ctx.request.high and not (ctx.request.low or ctx.request.pins):
            return False
        named = [
            (f"{path}/{value.name}" if path else value.name or "", value)
            for path, graph in model.graphs()
            for value in (*graph.inputs, *(value for node in graph for value in node.outputs))
        ]
        names = [name for name, _ in named]
        known = ctx.kept.get(_Measured)
        if known is not None and known.names == names:  # a later trial of the same model
            found = {id(value): known.ranges[name] for name, value in named if name in known.ranges}
        else:
            try:
                found = RangeMeasurement(model, ctx).ranges()
            except _NotMeasured as error:
                why = f"ranges were not measured: {error}"
                ctx.remark("failed", "", "ranges", why, suggest="see `dovetail verify`")
                return False
            ranges = {name: found[id(value)] for name, value in named if id(value) in found}
            ctx.kept.put(_Measured(names, ranges))
        named = [(name, value) for name, value in named if id(value) in found]
        model.ir.meta[_RANGES] = {id(value): (value, found[id(value)]) for _, value in named}
        ctx.count("values measured", len(found))
        document = {name: found[id(value)].as_dict() for name, value in sorted(named, key=itemgetter(0))}
        ctx.round.files[FILE] = json.dumps(document, indent=1, allow_nan=False) + "\n"
        return False


def measured_ranges(model: Model) -> Mapping[int, tuple[ir.Value, Range]]:
    """Return value and range by `id` of the value; holding the value keeps its `id` from being reused."""
    return model.ir.meta.get(_RANGES, {})


class _Measured(NamedTuple):
    """The measured ranges of a model, by value name.

    Attributes:
        names: All values, in graph order.
        ranges: The measured ones.
    """

    names: list[str]
    ranges: dict[str, Range]


class _NotMeasured(DovetailError):
    """No engine of the host runs the instrumented model."""


class RangeMeasurement:
    """The measurement of one model on the data of a request."""

    def __init__(self, model: Model, ctx: Context):
        from dovetail_runtime.engines import engines_of

        self._model = model
        self._ctx = ctx
        self._engines = engines_of([ctx.host], ctx.registry)
        self._sums = PartialSums(model, self._engines)
        self._found: dict[int, Range] = {}
        # Only operands and results of sums are compared by root mean squares, so only these need them.
        compared = [node for node in model.graph if node.op_type in ADDITIONS | MEANS]
        self._compared = {id(value) for node in compared for value in (*node.inputs, *node.outputs)}

    def ranges(self) -> dict[int, Range]:
        """Return the ranges of all values by `id`.

        Raises:
            DovetailError: No engine of the host runs the instrumented model.
        """
        # bfloat16 has the range of float32, so partial sums cannot overflow it either.
        narrow = any(backend.low == NARROW for backend in self._ctx.backends)
        main = [node for node in self._model.graph if _is_sum(node)] if narrow else []
        inside = [node for node in self._ctx.analysis(FlatGraph, self._model).nodes if narrow and _is_sum(node)]
        values, outside_loops = measurable(self._model), measurable(self._model, in_loops=False)
        self._run(values, [], main, None if narrow or len(outside_loops) == len(values) else outside_loops)
        outside = {id(node) for node in main}
        flagged = [node for node in inside if id(node) not in outside and _may_overflow(node, self._found)]
        if flagged:
            self._run([], flagged, [])
        return self._found

    def _run(
        self,
        values: list[ir.Value],
        sums_in_bodies: list[ir.Node],
        sums: list[ir.Node],
        then: list[ir.Value] | None = None,
    ) -> None:
        """Run all batches, part by part, and widen the ranges by the values seen.

        Args:
            values: The values to measure.
            sums_in_bodies: Sums in bodies whose partial sums are measured instead.
            sums: Sums of the main graph whose partial sums are measured as well.
            then: The values to measure after the first batch; None for the same.
        """
        from dovetail_runtime.data.batches import batches
        from dovetail_runtime.executor import RegionExecutor

        by_output = {node.outputs[0].name: node for node in sums}
        from_batch = {0: values, 1: then}
        try:
            says = partial(self._ctx.remark, "passed", "", "cut-data")
            for number, (feeds, _) in enumerate(batches(self._model, self._ctx.request.data, say=says)):
                if (measured := from_batch.get(number)) is not None:
                    work = instrumented(self._model, measured, sums_in_bodies)
                    executor = RegionExecutor(work.model, self._engines, {"optimize": "none"}, regions=work.regions)
                for name, array in feeds.items():
                    self._record(name, array, work)
                for done, (runner, there) in enumerate(executor.steps(feeds)):
                    if self._ctx.progress:
                        self._ctx.progress(f"measure ranges, batch {number + 1}", done + 1, len(executor.runners))
                    for name in runner.outputs:
                        self._record(name, there[name], work, bool(sums_in_bodies))
                    for name in runner.outputs:
                        if name in by_output:
                            self._measure_partial_sum(by_output[name], there)
        except DovetailError as error:
            raise _NotMeasured(error.message) from error

    def _record(self, name: str, array: np.ndarray, work: Instrumented, are_sums: bool = False) -> None:
        if name in work.direct:
            value = work.direct[name]
            reached = range_of_array(array, squares=id(value) in self._compared)
            if reached is not None:
                self._widen(value, reached)
            return
        for value, (low, high, smallest) in zip(work.rows.get(name, ()), array.tolist() if name in work.rows else ()):
            if high == -math.inf:  # the body did not run, or the value is empty
                continue
            if are_sums:
                self._found[id(value)] = self._found[id(value)].with_accumulated(high)
            else:
                self._widen(value, Range(-low, high, -smallest))

    def _measure_partial_sum(self, node: ir.Node, there: Mapping[str, np.ndarray]) -> None:
        """Measure partial sums of `node` in this batch if their bound exceeds the narrow type."""
        value = node.outputs[0]
        if _may_overflow(node, self._found):
            known = self._found[id(value)]
            reached = max(self._sums.largest(node, there), known.accumulated or 0.0)
            self._found[id(value)] = known.with_accumulated(reached)

    def _widen(self, value: ir.Value, reached: Range) -> None:
        known = self._found.get(id(value))
        self._found[id(value)] = reached if known is None else known | reached


def _is_sum(node: ir.Node) -> bool:
    return node.op_type in SUMS and is_onnx(node)


def _may_overflow(node: ir.Node, found: dict[int, Range]) -> bool:
    """Check whether an upper bound on the sums of `node` exceeds the narrow type, so that they must be measured."""
    if id(node.outputs[0]) not in found:
        return False
    extents = _terms(node)
    if extents is None:
        return True
    bound = float(extents)
    for value in node.inputs[: SUMS[node.op_type]]:
        bound *= _magnitude(value, found)
    return not bound <= LARGEST_FINITE[NARROW]


def _magnitude(value: ir.Value | None, found: dict[int, Range]) -> float:
    if id(value) in found:
        return found[id(value)].magnitude
    if value is not None and value.shape is not None and 0 in value.shape:
        return 0.0  # it has no elements, and is not measured
    if value is None or value.const_value is None:
        return math.inf
    array = value.const_value.numpy()
    return float(max(array.max(), -array.min())) if array.size else 0.0


def _terms(node: ir.Node) -> int | None:
    """Return the number of terms of a sum of `node`; None if it is unknown."""
    if node.op_type.startswith("Reduce"):
        shape, result = input_of(node, 0).shape, node.outputs[0].shape
        if shape is None or result is None or not shape.is_static() or not result.is_static():
            return None
        return math.prod(shape.numpy()) // max(math.prod(result.numpy()), 1)
    shape = input_of(node, 1).shape
    if shape is None or not shape.is_static() or not len(shape):
        return None
    extents = shape.numpy()
    if node.op_type == "MatMul":
        return extents[-2] if len(extents) > 1 else extents[0]
    if node.op_type == "Gemm":
        return extents[1 if node.attributes.get_int("transB", 0) else 0]
    return math.prod(extents) // extents[1 if node.op_type == "ConvTranspose" else 0]
