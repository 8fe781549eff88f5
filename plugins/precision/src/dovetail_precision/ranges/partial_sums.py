"""Bounds on partial sums: the operator applied to magnitudes, for nodes of the main graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

from dovetail_precision.ranges.reductions import SUMS, Reductions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail_runtime.executor import Executor
    from dovetail_runtime.guard import GuardedEngine


class PartialSums:
    """Measures partial sums of single nodes, each with a small model of its own that is loaded once."""

    def __init__(self, model: Model, engines: Mapping[str, Sequence[GuardedEngine]]):
        self._model = model
        self._engines = engines
        self._executors: dict[int, Executor] = {}

    def largest(self, node: ir.Node, values: Mapping[str, np.ndarray]) -> float:
        """Return the largest magnitude that a partial sum can reach in any order of summation.

        Args:
            node: A node of the main graph whose operator is one of `SUMS`.
            values: Its inputs by name; constants may be left out.
        """
        executor = self._executors.get(id(node)) or self._executors.setdefault(id(node), self._executor(node))
        wanted = {name_of(value) for value in node.inputs if value is not None and not value.is_initializer()}
        (found,) = executor.run({name: values[name] for name in wanted}).values()
        return float(found.max(initial=0.0))

    def _executor(self, node: ir.Node) -> Executor:
        import onnx_ir as ir
        from dovetail.ir.model import Model
        from dovetail_runtime.executor import Executor

        copies: dict[str, ir.Value] = {}
        for value in node.inputs:
            if value is not None and value.name not in copies:
                constant = value.const_value if value.is_initializer() else None
                shape = value.shape if constant is not None else None
                copies[name_of(value)] = ir.Value(name=value.name, type=value.type, shape=shape, const_value=constant)
        given = [copy for copy in copies.values() if copy.const_value is None]
        graph = ir.Graph(
            given,
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
        return Executor(work, self._engines, {"optimise": "none"})
