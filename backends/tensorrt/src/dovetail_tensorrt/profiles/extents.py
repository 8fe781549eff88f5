"""Extents and small integers of all values, at the minimum, optimum and maximum of a model's input extents.

The model's skeleton is inferred three times with concrete input extents. Integers that depend only on extents are
computed and become constants, because they may determine further shapes; this is repeated until a fixpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.ir import input_of, name_of
from dovetail.plugin import EngineError, is_onnx
from dovetail_onnx import skeleton_of
from dovetail_transforms import infer_types

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import Evaluator


_MOST_ROUNDS = 16
_LARGEST = 4096  # elements of integers that determine shapes
_NEVER = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)

Extents = tuple[int | None, ...]
"""Extents of a value; None for an open one."""


class Point:
    """Inferred extents and numbers of a model's values for one set of input extents.

    Attributes:
        shapes: Extents by value name, for values of known rank.
    """

    def __init__(self, shapes: dict[str, Extents], known: _Numbers):
        self.shapes, self._known = shapes, known

    @cached_property
    def numbers(self) -> Mapping[str, np.ndarray]:
        """Numbers that depend only on extents and constants, by value name; computed on first access."""
        self._known.follow(self.shapes)
        return self._known.found


def extents_at(
    model: Model,
    shapes: Mapping[str, tuple[int, ...]],
    named: Mapping[str, int],
    numbers: Mapping[str, tuple[int, ...]],
    evaluator: Evaluator | None,
) -> Point:
    """Infer the extents and numbers of all values in the main graph.

    Args:
        model: The model.
        shapes: Given extents by value name.
        named: Values of named extents.
        numbers: Content of integer inputs.
        evaluator: Computes single nodes; without one, only extents are inferred.
    """
    proto = type(skeleton_of(model).proto)()
    proto.CopyFrom(skeleton_of(model).proto)
    _fix(proto, shapes, named)
    known = _Numbers(model, numbers, evaluator)
    _give(proto.graph, known.found)
    for _ in range(_MOST_ROUNDS):
        inferred = _shapes(infer_types(proto).graph)
        # Inference evaluates most integers itself, so this is rarely needed.
        fresh = known.follow(inferred) if any(None in shape for shape in inferred.values()) else {}
        if not fresh:
            break
        _become_constants(proto.graph, fresh)
    return Point(inferred, known)


def _fix(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], named: Mapping[str, int]) -> None:
    """Set the extents of inputs, and drop declared shapes of other values that may contradict them."""
    import onnx

    graph = proto.graph
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim in dims:
            if dim.dim_param in named:
                dim.dim_value = named[dim.dim_param]
        if value.name in shapes:
            _set(value, shapes[value.name])
    kept = [value for value in graph.value_info if all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim)]
    inputs = {value.name for value in graph.input}
    inner = {name: shape for name, shape in shapes.items() if name not in inputs}
    kept = [value for value in kept if value.name not in inner]
    types = {value.name: value for value in (*graph.value_info, *graph.output)}
    if not inner.keys() <= types.keys():
        types = {value.name: value for value in infer_types(proto).graph.value_info}
    for name, shape in inner.items():
        if name in types:
            value = onnx.ValueInfoProto()
            value.CopyFrom(types[name])
            _set(value, shape)
            kept.append(value)
    kept = [type(value).FromString(value.SerializeToString()) for value in kept]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for value in graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param or dim.dim_value < 0:
                dim.Clear()


def _set(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    held = value.type.tensor_type.shape
    del held.dim[:]
    held.SetInParent()
    for extent in shape:
        held.dim.add().dim_value = extent


def _shapes(graph: onnx.GraphProto) -> dict[str, Extents]:
    found = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            extents = (dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            found[value.name] = tuple(extents)
    for tensor in graph.initializer:
        found[tensor.name] = tuple(tensor.dims)
    return found


def _give(graph: onnx.GraphProto, numbers: Mapping[str, np.ndarray]) -> None:
    """Turn inputs into constants, because inference ignores the content of inputs."""
    import onnx

    for index in reversed(range(len(graph.input))):
        if graph.input[index].name in numbers:
            del graph.input[index]
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in numbers.items())


def _become_constants(graph: onnx.GraphProto, numbers: Mapping[str, np.ndarray]) -> None:
    import onnx

    outputs = {value.name for value in graph.output}
    kept, constants = [], []
    for node in graph.node:
        names = [name for name in node.output if name]
        if names and all(name in numbers for name in names) and outputs.isdisjoint(names):
            constants += names
        else:
            kept.append(type(node).FromString(node.SerializeToString()))
    if constants:
        del graph.node[:]
        graph.node.extend(kept)
        graph.initializer.extend(onnx.numpy_helper.from_array(numbers[name], name) for name in constants)


class _Numbers:
    """Integers that depend only on extents."""

    def __init__(self, model: Model, given: Mapping[str, tuple[int, ...]], evaluator: Evaluator | None):
        import numpy as np

        self.found: dict[str, np.ndarray] = {}
        self._model, self._evaluator = model, evaluator
        self._failed: set[int] = set()
        for value in model.graph.inputs:
            name = name_of(value)
            if name in given and value.dtype is not None:
                numbers = np.array(given[name], value.dtype.numpy())
                self.found[name] = numbers.reshape([]) if value.shape is not None and not value.shape else numbers

    def follow(self, shapes: Mapping[str, Extents]) -> dict[str, np.ndarray]:
        """Return newly inferred numbers for these extents, by value name."""
        fresh: dict[str, np.ndarray] = {}
        for node in self._model.graph:
            names = [value.name for value in node.outputs if value.name]
            if not names or names[0] in self.found or id(node) in self._failed or node.op_type in _NEVER:
                continue
            results = self._results(node, shapes)
            for name, array in zip(names, results or (), strict=False):
                if array.size <= _LARGEST:
                    self.found[name] = fresh[name] = array
        return fresh

    def _results(self, node: ir.Node, shapes: Mapping[str, Extents]) -> list[np.ndarray] | None:
        import numpy as np

        if not is_onnx(node):
            return None
        if node.op_type in ("Shape", "Size"):
            shape = shapes.get(name_of(input_of(node, 0)))
            if shape is None:
                return None
            start = node.attributes.get_int("start", 0)
            end = node.attributes.get_int("end", len(shape))
            shape = shape[start:end] if node.op_type == "Shape" else shape
            known = [extent for extent in shape if extent is not None]
            if len(known) < len(shape):
                return None
            return [np.array(known if node.op_type == "Shape" else math.prod(known), np.int64)]
        # Constants were folded before; only nodes that depend on an extent are new.
        if not any(value is not None and value.name in self.found for value in node.inputs):
            return None
        inputs = [None if value is None else self._array(value) for value in node.inputs]
        if any(value is not None and array is None for value, array in zip(node.inputs, inputs, strict=True)):
            return None
        if self._evaluator is None:
            return None
        try:
            return list(self._evaluator.evaluate(node, inputs, self._model.ir.opset_imports))
        except EngineError:
            self._failed.add(id(node))
            return None

    def _array(self, value: ir.Value) -> np.ndarray | None:
        if value.name in self.found:
            return self.found[value.name]
        tensor = value.const_value
        if tensor is None or value.producer() is not None or tensor.dtype.name == "STRING" or tensor.size > _LARGEST:
            return None
        return tensor.numpy()
