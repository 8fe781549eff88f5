"""Nodes of one operator that can be changed: extents and attributes of onnx's node tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail_testing.suites import node_cases

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet


_MOST_ELEMENTS = 1 << 20  # of all inputs together
_MOST_SAMPLES = 24  # of one operator
_TELLING = 64  # elements that tell an array from others of the same shape
_IR = 10

Shape = tuple[int, ...]


@dataclass(frozen=True)
class NodeSample:
    """A node with its inputs.

    Attributes:
        op_type: The operator.
        attributes: Attributes by name.
        inputs: The input arrays; None for one that is left out.
        constant: Which of them are constants.
        outputs: Number of outputs.
        opset: Version of the default domain.
        domain: The operator's domain.
        version: Version of that domain, if it is another one.
        unused: Numbers of outputs that are left out.
    """

    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[np.ndarray | None, ...]
    constant: tuple[bool, ...]
    outputs: int
    opset: int
    domain: str = ""
    version: int = 0
    unused: frozenset[int] = frozenset()

    def proto(self) -> onnx.ModelProto | None:
        """Return the model of this node alone; None if it is invalid, or too large."""
        import onnx
        from onnx import helper, numpy_helper

        if sum(array.size for array in self.inputs if array is not None) > _MOST_ELEMENTS:
            return None
        names = [f"in{index}" if array is not None else "" for index, array in enumerate(self.inputs)]
        outputs = [f"out{index}" if index not in self.unused else "" for index in range(self.outputs)]
        given = [(name, array, held) for name, array, held in zip(names, self.inputs, self.constant) if name]
        info = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array, held in given
            if array is not None and not held
        ]
        weights = [numpy_helper.from_array(array, name) for name, array, held in given if array is not None and held]
        try:
            node = helper.make_node(
                self.op_type, names, outputs, self.op_type.lower(), domain=self.domain or None, **self.attributes
            )
            results = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
            graph = helper.make_graph([node], "sample", info, results, weights)
            imports = {"": self.opset} | ({self.domain: self.version} if self.domain else {})
            versions = [helper.make_opsetid(*each) for each in imports.items()]
            model = helper.make_model(graph, opset_imports=versions, ir_version=_IR)
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
            onnx.checker.check_model(model)
        except Exception:  # onnx raises various exceptions on nodes that are no nodes
            return None
        return model if all(value.type.WhichOneof("value") for value in model.graph.output) else None

    def schema(self) -> onnx.defs.OpSchema:
        """Return the schema of its operator, in its version."""
        import onnx

        return onnx.defs.get_schema(self.op_type, self.version if self.domain else self.opset, self.domain)

    def image(self) -> Shape:
        """Return the extents of its first input behind batch and channels."""
        return self.inputs[0].shape[2:] if self.inputs and self.inputs[0] is not None else ()

    def key(self) -> tuple[object, ...]:
        """Return what tells it from other samples, which are made by repeating elements of few arrays."""
        arrays = [
            None if array is None else (array.shape, array.dtype.str, array.ravel()[:_TELLING].tobytes())
            for array in self.inputs
        ]
        return self.op_type, repr(sorted(self.attributes.items())), tuple(arrays), self.constant, self.outputs

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs that are no constants, by name."""
        pairs = enumerate(zip(self.inputs, self.constant))
        return {f"in{index}": array for index, (array, held) in pairs if array is not None and not held}

    def with_extents(self, extents: Mapping[tuple[int, int], int]) -> NodeSample:
        """Return a sample with other extents, by number of the input and of its axis; elements are repeated."""
        inputs = list(self.inputs)
        for index in {index for index, _ in extents}:
            array = inputs[index]
            if array is None:
                continue
            shape = tuple(extents.get((index, axis), extent) for axis, extent in enumerate(array.shape))
            if min(shape, default=1) < 0 or int(np.prod(shape, dtype=np.int64)) > _MOST_ELEMENTS:
                return replace(self, inputs=(None,) * len(inputs))
            inputs[index] = np.resize(array, shape)
        return replace(self, inputs=tuple(inputs))

    def with_attribute(self, name: str, value: object) -> NodeSample:
        """Return a sample with another value of an attribute."""
        return replace(self, attributes={**self.attributes, name: value})

    def with_constant(self, index: int, constant: bool) -> NodeSample:
        """Return a sample with an input as a constant, or not."""
        return replace(self, constant=tuple(constant if at == index else old for at, old in enumerate(self.constant)))

    def with_rank(self, index: int, rank: int) -> NodeSample:
        """Return a sample with an input of another rank: add leading extents of 1, or drop leading extents."""
        array = self.inputs[index]
        if array is None:
            return self
        shape = (1,) * (rank - array.ndim) + array.shape[max(0, array.ndim - rank) :]
        made = np.resize(array, shape)
        return replace(self, inputs=tuple(made if at == index else old for at, old in enumerate(self.inputs)))

    def floats(self) -> Iterator[tuple[int, Shape]]:
        """Yield number and shape of each input of floats: others are shapes, axes and indices."""
        for index, array in enumerate(self.inputs):
            if array is not None and array.dtype.kind == "f":
                yield index, array.shape


def samples_of(op_type: str, opset: int, plugins: PluginSet) -> Sequence[NodeSample]:
    """Return samples of an operator from onnx's node tests, first those with all inputs but the first as constants.

    Args:
        op_type: The operator.
        opset: Version of the default domain.
        plugins: The plugins.
    """
    found: list[NodeSample] = []
    for case in node_cases():
        if case.operator != op_type or len(found) >= 2 * _MOST_SAMPLES:
            continue
        work = case.make(plugins)
        graph = work.proto.graph if work.proto is not None else None
        if graph is None or len(graph.node) != 1 or graph.node[0].op_type != op_type:
            continue
        sample = _sample(graph.node[0], work.inputs, opset)
        if sample is not None:
            found += [sample, replace(sample, constant=(False,) * len(sample.constant))]
    found = [sample for sample in found if sample.proto() is not None]
    return sorted(found, key=lambda sample: not any(sample.constant))


def _sample(node: onnx.NodeProto, inputs: Mapping[str, Any], opset: int) -> NodeSample | None:
    from onnx import helper

    arrays = [inputs.get(name) if name else None for name in node.input]
    plain = [np.asarray(a, np.float32) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays]
    if not all(array is None or isinstance(array, np.ndarray) for array in plain):
        return None
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type.startswith("Conv"):
        attributes.pop("kernel_shape", None)  # the weight says it
    constant = tuple(index > 0 for index in range(len(plain)))
    return NodeSample(node.op_type, attributes, tuple(plain), constant, len(node.output), opset)
