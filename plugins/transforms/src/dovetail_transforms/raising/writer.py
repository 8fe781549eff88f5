"""The input and output of a raising rule: one node, known facts about its values, and the nodes that replace it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail_onnx.topological_order import bodies_of

from dovetail_transforms.canonicalize.names import all_nodes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from dovetail.ir import FreshNames


class NodeNotRaised(Exception):
    """A node has no form in the newer version; the message is the reason."""


class Values:
    """Known facts about the values of a model or a function before it is raised: types, extents, constants."""

    def __init__(self, types: Mapping[str, onnx.TypeProto], constants: Mapping[str, onnx.TensorProto]):
        self._types = types
        self._constants = dict(constants)

    @classmethod
    def of_model(cls, proto: onnx.ModelProto, with_types: bool) -> Values:
        """Collect the facts about a model; types are inferred, unless `with_types` is false."""
        import onnx.shape_inference

        types: dict[str, onnx.TypeProto] = {}
        graphs = [onnx.shape_inference.infer_shapes(proto).graph] if with_types else []
        while graphs:
            graph = graphs.pop()
            for value in (*graph.value_info, *graph.output, *graph.input):
                types[value.name] = value.type
            for tensor in graph.initializer:
                kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
                types.setdefault(tensor.name, kind)
            graphs.extend(body for node in graph.node for body in bodies_of(node))
        constants = {tensor.name: tensor for tensor in proto.graph.initializer if not tensor.external_data}
        defaults = {value.name for value in proto.graph.input}
        return cls(types, {name: tensor for name, tensor in constants.items() if name not in defaults}).reading(
            all_nodes(proto.graph)
        )

    @classmethod
    def of_function(cls, function: onnx.FunctionProto) -> Values:
        """Collect the facts about a function: only constants."""
        return cls({}, {}).reading(function.node)

    def reading(self, nodes: Iterable[onnx.NodeProto]) -> Values:
        """Add the tensors of Constant nodes."""
        for node in nodes:
            if node.op_type == "Constant" and not node.domain and len(node.output) == 1:
                for attribute in node.attribute:
                    if attribute.name == "value" and attribute.HasField("t"):
                        self._constants[node.output[0]] = attribute.t
        return self

    def constant(self, name: str) -> np.ndarray | None:
        """Return the elements of a constant; None for any other value, and for large weights."""
        import onnx.numpy_helper

        held = self._constants.get(name)
        return None if held is None else onnx.numpy_helper.to_array(held)

    def element_type(self, name: str) -> int:
        """Return the element type of a tensor, as a number of `onnx.TensorProto`; 0 if unknown."""
        if (held := self._constants.get(name)) is not None:
            return held.data_type
        kind = self._types.get(name)
        return 0 if kind is None else kind.tensor_type.elem_type

    def extents(self, name: str) -> list[int | None] | None:
        """Return the extents of a tensor, None for each that is open; None if the rank is unknown."""
        if (held := self._constants.get(name)) is not None:
            return list(held.dims)
        kind = self._types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        return [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim]


class Writer:
    """Reads one node, and writes its replacement, in the version that a step raises it to.

    Attributes:
        node: The node, in the version before. Rules may change it and keep it.
        values: Known facts about its values.
        wanted: The opset that the model is raised to: rules may use nothing newer.
        made: The new nodes, each with the version that it is written in.
    """

    def __init__(self, node: onnx.NodeProto, version: int, wanted: int, values: Values, names: FreshNames):
        self.node, self.values, self.wanted = node, values, wanted
        self.made: list[tuple[onnx.NodeProto, int]] = []
        self._version, self._names = version, names

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, texts decoded."""
        import onnx

        for attribute in self.node.attribute:
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def take(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, and remove it."""
        value = self.attribute(name, default)
        self.drop(name)
        return value

    def drop(self, *names: str) -> None:
        """Remove attributes."""
        for index in reversed(range(len(self.node.attribute))):
            if self.node.attribute[index].name in names:
                del self.node.attribute[index]

    def write(self, **attributes: Any) -> None:
        """Set attributes."""
        import onnx

        self.drop(*attributes)
        self.node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())

    def constant(self, array: np.ndarray, hint: str) -> str:
        """Write a constant; returns its name."""
        import onnx.numpy_helper

        name = self._fresh(hint)
        tensor = onnx.numpy_helper.from_array(array)
        self.made.append((onnx.helper.make_node("Constant", [], [name], value=tensor), self._version))
        return name

    def integers(self, numbers: int | Iterable[int], hint: str) -> str:
        """Write a constant of int64: a list, or a single number without axes."""
        import numpy as np

        return self.constant(np.array(numbers if isinstance(numbers, int) else list(numbers), np.int64), hint)

    def number_like(self, number: float, value: str, hint: str) -> str:
        """Write a constant without axes, in the element type of `value`.

        Raises:
            NodeNotRaised: The type of `value` is unknown.
        """
        import numpy as np
        import onnx

        kind = self.element_type(value)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        if np.issubdtype(dtype, np.floating):
            limits = np.finfo(dtype)
            number = min(max(number, float(limits.min)), float(limits.max))
        return self.constant(np.array(number, dtype), hint)

    def element_type(self, value: str) -> int:
        """Return the element type of a value.

        Raises:
            NodeNotRaised: It is unknown.
        """
        if not (kind := self.values.element_type(value)):
            raise NodeNotRaised(f"the type of '{value}' is unknown")
        return kind

    def rank(self, value: str) -> int | None:
        """Return the rank of a value; None if it is unknown."""
        extents = self.values.extents(value)
        return None if extents is None else len(extents)

    def add(self, op_type: str, *inputs: str, hint: str, version: int | None = None, **attributes: Any) -> str:
        """Write a node with one output, in the version of the step or in another one; returns the output's name."""
        name = self._fresh(hint)
        self.add_named(name, op_type, *inputs, version=version, **attributes)
        return name

    def add_named(self, output: str, op_type: str, *inputs: str, version: int | None = None, **attributes: Any) -> None:
        """Write a node with one output of a given name."""
        import onnx

        self.made.append((onnx.helper.make_node(op_type, inputs, [output], **attributes), version or self._version))

    def finish(self, op_type: str, *inputs: str, version: int | None = None, **attributes: Any) -> None:
        """Write the node that computes the outputs of the node that is replaced, and has its name."""
        import onnx

        made = onnx.helper.make_node(op_type, inputs, self.node.output, self.node.name, **attributes)
        self.keep(made, version)

    def keep(self, node: onnx.NodeProto | None = None, version: int | None = None) -> None:
        """Write a node as it is; without one, the node that is replaced, as the rule changed it."""
        made = self.node if node is None else node
        if made is not self.node:
            made.metadata_props.extend(self.node.metadata_props)
        self.made.append((made, version or self._version))

    def fresh(self, hint: str) -> str:
        """Return an unused name for a value."""
        return self._fresh(hint)

    def _fresh(self, hint: str) -> str:
        stem = self.node.name or (self.node.output[0] if self.node.output else self.node.op_type)
        return self._names.fresh(f"{stem}_{hint}")
