"""A graph that grows node by node: each is executed when it is added, so that values have types, shapes and numbers.

What ONNX Runtime refuses is not added, nor what leaves the finite numbers; so models run, and their inputs are known.
"""

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

LARGEST = 200.0  # of any value: rounding errors stay small beside what is computed


class Impossible(Exception):
    """A node that cannot stand there."""


class Graph:
    """Nodes, weights and values of one graph.

    Attributes:
        rng: Everything that is drawn.
        opset: The version of ONNX's operators.
        float: The type of the floats: float32 or float16.
        arrays: Every value with its numbers, by name.
        inputs: The names of the model's inputs.
    """

    def __init__(self, rng, opset, float_type, outer=None):
        self.rng, self.opset, self.float = rng, opset, float_type
        self.arrays, self.inputs, self.nodes, self.weights = {}, [], [], {}
        self.made = []
        self.outer = outer
        if outer is not None:
            self.arrays.update(outer.arrays)
        self._counter = outer._counter if outer is not None else [0]

    def fresh(self, stem):
        """A name that no other graph around has."""
        self._counter[0] += 1
        return f"{stem}_{self._counter[0]}"

    def input(self, name, array):
        self.inputs.append(name)
        self.arrays[name] = array
        self.made.append(name)
        return name

    def weight(self, array, shared=False):
        """An initializer; one that the graph has already if `shared` and there is an equal one."""
        array = np.asarray(array)
        if shared:
            for name, other in self.weights.items():
                if other.dtype == array.dtype and other.shape == array.shape and np.array_equal(other, array):
                    return name
        name = self.fresh("w")
        self.weights[name] = self.arrays[name] = array
        return name

    def normal(self, *shape, scale=None):
        """A weight with random numbers, of a size that keeps values as large as they are."""
        scale = scale or 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.weight((self.rng.standard_normal(shape) * scale).astype(self.float))

    def whole(self, *numbers):
        """A constant of int64."""
        return self.weight(np.asarray(numbers, np.int64), shared=True)

    def number(self, value, dtype=None):
        """A constant of rank 0, sometimes made by a Constant node."""
        array = np.asarray(value, dtype or self.float)
        if self.rng.random() < 0.3:
            return self.add("Constant", value=numpy_helper.from_array(array, self.fresh("t")))
        return self.weight(array, shared=self.rng.random() < 0.7)

    def add(self, op_type, *inputs, outputs=1, keep=True, largest=LARGEST, **attributes):
        """Add a node; returns the name of its output, or of all if there are several."""
        names = [self.fresh(op_type.lower()[:8]) for _ in range(outputs)]
        node = helper.make_node(op_type, inputs, names, f"n_{names[0]}", **attributes)
        results = self._executed(node)
        for array in results:
            if array.dtype.kind == "f" and (not np.isfinite(array).all() or np.abs(array).max(initial=0) > largest):
                raise Impossible(f"{op_type} leaves the numbers")
            if array.size == 0 or array.size > 1 << 16:
                raise Impossible(f"{op_type} is empty or large")
        self.nodes.append(node)
        self.arrays.update(zip(names, results))
        if keep:
            self.made += names
        return names[0] if outputs == 1 else names

    def values(self, accept=lambda array: True):
        """Names of computed values and inputs that `accept`."""
        known = [*(self.outer.values() if self.outer is not None else []), *self.made]
        return [name for name in known if accept(self.arrays[name])]

    def _executed(self, node):
        read = sorted(captured(node))
        infos = [_info(name, self.arrays[name]) for name in read]
        graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in node.output])
        try:
            return run(helper.make_model(graph, opset_imports=self._opsets(), ir_version=10), {
                name: self.arrays[name] for name in read
            })  # fmt: skip
        except Exception as error:
            raise Impossible(f"{node.op_type}: {error}") from error

    def _opsets(self):
        return [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]

    def body(self, outputs, inputs=()):
        """This graph as the body of an If or Loop."""
        infos = [_info(name, self.arrays[name]) for name in inputs]
        results = [_info(name, self.arrays[name]) for name in outputs]
        return helper.make_graph(self.nodes, self.fresh("body"), infos, results, self._tensors())

    def _tensors(self):
        return [numpy_helper.from_array(array, name) for name, array in self.weights.items()]

    def model(self, outputs, open_extents):
        """The model; inputs have the extents in `open_extents` as names, by (input, axis)."""
        infos = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(self.arrays[name].dtype),
                [open_extents.get((name, axis), extent) for axis, extent in enumerate(self.arrays[name].shape)],
            )
            for name in self.inputs
        ]
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        for end in ends:
            array = self.arrays[end.name]
            shape = None if open_extents else array.shape
            end.CopyFrom(helper.make_tensor_value_info(end.name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        graph = helper.make_graph(self.nodes, "grown", infos, ends, self._tensors())
        return helper.make_model(graph, opset_imports=self._opsets(), ir_version=8 if self.opset < 20 else 10)


def captured(node):
    """The names that a node reads from around it, in its bodies too."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graph, made = attribute.g, {value.name for value in attribute.g.input}
            made |= {weight.name for weight in graph.initializer}
            for inner in graph.node:
                found |= captured(inner) - made
                made |= set(inner.output)
            found |= {value.name for value in graph.output} - made
    return found


def run(model, feeds, outputs=None):
    """Arrays of the outputs by ONNX Runtime without optimizers."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(outputs, feeds)]


def _info(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
