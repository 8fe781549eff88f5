"""A model that gives out ranges instead of values: what is measured is reduced where it is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.ranges.range import MASK

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model

__all__ = ["SUMS", "instrumented", "measurable"]

# Operators that add up what they read: its products with a second input, or itself.
SUMS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "MatMul": 2, "ReduceMean": 1, "ReduceSum": 1}
_LIMIT = "dovetail_range_limit"


def measurable(model: Model) -> list[ir.Value]:
    """The values of the main graph that can be measured: float32, and not known to be empty."""
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return [
        value
        for value in values
        if value.name and float_name(value) == "float32" and not (value.shape is not None and 0 in value.shape)
    ]


def instrumented(model: Model, values: list[str], sums: list[str]) -> Model:
    """A copy of `model` that gives out only reductions.

    Args:
        model: The model; it is not changed, and its weights are shared.
        values: Names of values; the output `NAME/range` is their minimum, maximum and smallest magnitude above zero.
        sums: Names of results of `SUMS`; the output `NAME/sum` is the largest sum of magnitudes.
    """
    work = model.clone()
    by_name = {value.name: value for value in work.graph.inputs}
    by_name |= {value.name: value for node in work.graph for value in node.outputs}
    builder = _Builder(work)
    outputs = [builder.range_of(by_name[name]) for name in values]
    outputs += [builder.sum_of(by_name[name].producer()) for name in sums]
    work.graph.outputs[:] = outputs
    work.touch()
    return work


class _Builder:
    """Adds nodes at the end of a graph."""

    def __init__(self, model: Model):
        import numpy as np

        self._graph = model.graph
        self._count = 0
        self._constants = {
            name: self._constant(f"{_LIMIT}_{name}", np.float32(number))
            for name, number in {"mask": MASK, "zero": 0.0, "infinity": np.inf}.items()
        }
        self._vector = self._constant(f"{_LIMIT}_vector", np.array([1], np.int64))

    def range_of(self, value: ir.Value) -> ir.Value:
        """Three numbers; masks and what is no number count as zero."""
        mask, zero, infinity = (self._constants[name] for name in ("mask", "zero", "infinity"))
        magnitude = self._node("Abs", value)
        plain = self._node("Where", self._node("Less", magnitude, mask), value, zero)
        there = self._node("And", self._node("Less", magnitude, mask), self._node("Greater", magnitude, zero))
        above = self._node("Where", there, magnitude, infinity)
        three = [self._all(operator, of) for operator, of in (("Min", plain), ("Max", plain), ("Min", above))]
        return self._output(self._node("Concat", *three, axis=0), f"{value.name}/range")

    def sum_of(self, node: ir.Node) -> ir.Value:
        """The same operator on magnitudes."""
        summed = [self._node("Abs", value) for value in node.inputs[: SUMS[node.op_type]]]
        rest = [value for value in node.inputs[SUMS[node.op_type] :] if node.op_type.startswith("Reduce")]
        attributes = {name: attribute for name, attribute in node.attributes.items() if name not in ("alpha", "beta")}
        total = self._node(node.op_type, *summed, *rest, **attributes)
        if node.op_type == "ReduceMean":
            count = self._node("Div", self._node("Size", summed[0]), self._node("Size", total))
            total = self._node("Mul", total, self._node("Cast", count, to=1))
        return self._output(self._all("Max", total), f"{node.outputs[0].name}/sum")

    def _all(self, operator: str, value: ir.Value) -> ir.Value:
        """One number of all elements, as a vector."""
        return self._node("Reshape", self._node(f"Reduce{operator}", value, keepdims=0), self._vector)

    def _node(self, operator: str, *inputs: ir.Value, **attributes) -> ir.Value:
        import onnx_ir as ir

        self._count += 1
        name = f"dovetail_range_{self._count}"
        node = ir.node(operator, inputs, {}, outputs=[ir.Value(name=name)], name=name)
        for key, attribute in attributes.items():
            if isinstance(attribute, ir.Attr):
                node.attributes[key] = attribute
            else:
                node.attributes[key] = ir.AttrInt64(key, attribute)
        self._graph.append(node)
        return node.outputs[0]

    def _constant(self, name: str, array) -> ir.Value:
        import onnx_ir as ir

        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def _output(self, value: ir.Value, name: str) -> ir.Value:
        import onnx_ir as ir

        value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape([3 if name.endswith("/range") else 1])
        return value
