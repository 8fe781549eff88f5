"""A graph builder: every call appends one operator and infers its types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, name_of

from dovetail_builder.autocast import current_region

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    Attributes = dict[str, Any] | None


class Builder:
    """Builds a model: `y = builder.MatMul(x, w)`.

    Inside an `autocast` region, the inputs of every operator are cast as its policy requires; a value is cast once per
    type.

    Args:
        opset: The version of the default ONNX domain.
        name: Name of the graph.
    """

    def __init__(self, opset: int = 22, name: str = "graph"):
        import onnx_ir as ir

        self.opset = opset
        self._graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name=name)
        self._names = FreshNames()

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> ir.Value:
        """Add an input of the model; `dtype` as in `float32`, open extents by name."""
        import onnx_ir as ir
        from dovetail.ir import from_name

        value = ir.Value(name=self._names.fresh(name), type=ir.TensorType(from_name(dtype)), shape=ir.Shape(shape))
        self._graph.inputs.append(value)
        return value

    def constant(self, array: np.ndarray, name: str = "constant") -> ir.Value:
        """Add an initializer."""
        import onnx_ir as ir

        tensor = ir.tensor(array, name=self._names.fresh(name))
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self._graph.register_initializer(value)
        return value

    def output(self, value: ir.Value, name: str | None = None) -> None:
        """Make `value` an output of the model, named `name` if given."""
        if name is not None:
            value.name = self._names.fresh(name)
        self._graph.outputs.append(value)

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Attributes = None,
        *,
        outputs: int = 1,
        domain: str = "",
    ) -> ir.Value | tuple[ir.Value, ...]:
        """Append an operator and return its outputs: one value, or a tuple if there are several.

        Raises:
            DovetailError: The types of its inputs are incompatible.
        """
        region = current_region()
        if region is not None:
            inputs, finish = region.prepare(self, op_type, domain, inputs)
        values = self.plain_op(op_type, inputs, attributes, outputs=outputs, domain=domain)
        if region is not None:
            values = tuple(finish(value) for value in values)
        return values[0] if len(values) == 1 else values

    def plain_op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Attributes = None,
        *,
        outputs: int = 1,
        domain: str = "",
    ) -> tuple[ir.Value, ...]:
        """Append an operator as `op` does, without casts, and always return a tuple."""
        import onnx_ir as ir
        from dovetail_onnx.type_check import node_problem

        name = self._names.fresh(op_type.lower())
        node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=outputs, name=name)
        for index, value in enumerate(node.outputs):
            value.name = self._names.fresh(f"{name}_out{index or ''}")
        if domain not in self._graph.opset_imports:
            self._graph.opset_imports[domain] = _newest(op_type, domain)
        problem = node_problem(node, self._graph.opset_imports)
        if problem is not None:
            raise DovetailError(problem, "cast one of them, or build it inside autocast(...)")
        _infer(node, self._graph.opset_imports[domain])
        self._graph.append(node)
        return tuple(node.outputs)

    def model(self) -> Model:
        """Return the model built so far."""
        import onnx
        import onnx_ir as ir
        from dovetail.ir import Model

        version = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", self.opset), onnx.IR_VERSION)
        return Model(ir.Model(self._graph, ir_version=max(version, 8)))

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(f"a Builder has no '{op_type}'; operators begin with a capital")

        def append(*inputs: ir.Value | None, outputs: int = 1, domain: str = "", **attributes: Any):
            return self.op(op_type, inputs, attributes, outputs=outputs, domain=domain)

        return append


def _newest(op_type: str, domain: str) -> int:
    """Return the domain version with the newest definition of an operator; 1 for operators unknown to onnx."""
    import onnx

    return onnx.defs.get_schema(op_type, domain).since_version if onnx.defs.has(op_type, domain) else 1


def _infer(node: ir.Node, opset: int) -> None:
    """Set the output types of `node` that onnx infers; others stay open."""
    import onnx
    import onnx_ir as ir

    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return
    known = [value for value in node.inputs if value is not None]
    if any(value.type is None for value in known):
        return  # the outputs of an operator without inference are unknown
    kinds = {name_of(value): _type_proto(value) for value in known}
    data = {
        name_of(value): ir.to_proto(tensor)
        for value in known
        if (tensor := value.const_value) is not None and tensor.size < 64
    }
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), kinds, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError):
        return
    for value in node.outputs:
        if value.name in found:
            value.type = ir.serde.deserialize_type_proto_for_type(found[value.name])
            value.shape = ir.serde.deserialize_type_proto_for_shape(found[value.name])


def _type_proto(value: ir.Value):
    import onnx_ir as ir

    return ir.to_proto(value).type
