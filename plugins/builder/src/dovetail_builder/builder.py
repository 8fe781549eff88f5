"""A graph builder: every call appends one operator, typed at once."""

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

    Inside an `autocast` region every operator's inputs are cast as its policy says; a value is cast once per type.

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
        """A new input of the model; `dtype` as in `float32`, open extents by name."""
        import onnx_ir as ir
        from dovetail.ir import from_name

        value = ir.Value(name=self._names.fresh(name), type=ir.TensorType(from_name(dtype)), shape=ir.Shape(shape))
        self._graph.inputs.append(value)
        return value

    def constant(self, array: np.ndarray, name: str = "constant") -> ir.Value:
        """An initializer."""
        import onnx_ir as ir

        tensor = ir.tensor(array, name=self._names.fresh(name))
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self._graph.register_initializer(value)
        return value

    def output(self, value: ir.Value, name: str | None = None) -> None:
        """Let the model give `value` out, under `name` if one is given."""
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
        """Append an operator and give its outputs: one value, or a tuple where there are several.

        Raises:
            DovetailError: The types of its inputs do not go together.
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
        """The same as `op`, without casts and always with a tuple."""
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
        """The model as it is by now."""
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
    """The version of a domain with the newest definition of an operator; 1 for operators that onnx does not know."""
    import onnx

    return onnx.defs.get_schema(op_type, domain).since_version if onnx.defs.has(op_type, domain) else 1


def _infer(node: ir.Node, opset: int) -> None:
    """Give the outputs of `node` the types that onnx infers; what it cannot infer stays open."""
    import onnx
    import onnx_ir as ir

    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return
    known = [value for value in node.inputs if value is not None]
    if any(value.type is None for value in known):
        return  # nothing says what an operator without inference gives
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
