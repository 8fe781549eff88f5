"""A graph that grows node by node, with the shape and a bound of every value known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BOOL", "FLOAT", "INT32", "INT64", "Graph", "Impossible", "Value"]

FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
LARGEST = 6.0
"""Largest bound of a value that is used directly; values with larger bounds are squashed first."""


class Impossible(Exception):
    """The operator does not fit this graph: no value of the kind it needs, or an opset without it."""


@dataclass(frozen=True)
class Value:
    """One value of the graph.

    Attributes:
        name: Its name.
        dtype: Element type, as in TensorProto.
        shape: Its extents, all known.
        bound: No element is larger in magnitude, roughly.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    bound: float = LARGEST

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass
class Graph:
    """A graph under construction.

    Attributes:
        rng: Makes every choice.
        opset: Version of the default domain.
        values: What later nodes may read.
        ends: What cannot be read further (its shape depends on data) and becomes an output.
        rare: Operators may have any attributes and extents, not only common ones.
    """

    rng: np.random.Generator
    opset: int
    values: list[Value] = field(default_factory=list)
    ends: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    counter: list[int] = field(default_factory=lambda: [0])
    rare: bool = False

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        self.counter[0] += 1
        return f"{stem}{self.counter[0]}"

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence):
        """One of `options`."""
        if not len(options):
            raise Impossible
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, inclusive."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, dtype: int = FLOAT, fits: Callable[[Value], bool] = lambda value: True, largest=LARGEST) -> Value:
        """Return a value of a suitable type, preferring newer ones; a float that may be large is squashed first."""
        found = [value for value in self.values if value.dtype == dtype and fits(value)]
        if not found:
            raise Impossible
        index = len(found) - 1 - min(int(self.rng.exponential(2.5)), len(found) - 1)
        value = found[index]
        if dtype == FLOAT and value.bound > largest:
            return self.squash(value, largest)
        return value

    def squash(self, value: Value, largest: float = 1.0) -> Value:
        """A float value no larger than `largest`."""
        if self.opset >= 13 and largest >= 2 and self.chance(0.5):
            low, high = self.constant(np.float32(-2)), self.constant(np.float32(2))
            return self.node("Clip", [value, low, high], bound=2.0)
        return self.node(self.choose(["Tanh", "Softsign", "Sigmoid"]), [value], bound=1.0)

    def floats(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A float value that fits."""
        return self.pick(FLOAT, fits)

    def ranked(self, *ranks: int) -> Value:
        """A float value of one of the ranks, without empty extents; one is reshaped where there is none."""
        try:
            return self.floats(lambda value: value.rank in ranks)
        except Impossible:
            value, rank = self.floats(lambda value: value.rank >= 1), self.choose(ranks)
            shape = self.factors(int(np.prod(value.shape)), rank)
            return self.node("Reshape", [value, self.constant(np.array(shape, np.int64))], bound=value.bound)

    def factors(self, size: int, rank: int) -> list[int]:
        """`rank` extents whose product is `size`."""
        shape = [1] * rank
        for prime in _primes(size):
            shape[self.integer(0, rank - 1)] *= prime
        return shape

    def constant(self, array, stem: str = "c") -> Value:
        """A constant: mostly an initializer, at times the result of a Constant node."""
        array = np.asarray(array)
        name = self.fresh(stem)
        tensor = numpy_helper.from_array(array, name)
        self.constants[name] = array
        if self.chance(0.1):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return Value(name, tensor.data_type, array.shape, float(np.abs(array).max(initial=0)) if array.size else 0.0)

    def weight(self, *shape: int, scale: float = 1.0) -> Value:
        """Random weights with the deviation `scale`."""
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32), "w")

    def positive(self, *shape: int) -> Value:
        """Random weights from 0.3 to 2.5, for scales and variances."""
        return self.constant(self.rng.uniform(0.3, 2.5, shape).astype(np.float32), "p")

    def ints(self, *values: int) -> Value:
        """A one-dimensional int64 constant."""
        return self.constant(np.array(values, np.int64), "i")

    def node(self, op_type: str, inputs: Sequence[Value | None], bound: float = LARGEST, **attributes) -> Value:
        """Add a node and return its first result; the types come from ONNX's own inference."""
        return self.results(op_type, inputs, 1, bound, **attributes)[0]

    def results(
        self, op_type: str, inputs: Sequence[Value | None], count: int, bound: float = LARGEST, **attributes
    ) -> list[Value]:
        """Add a node with `count` outputs and return them all."""
        try:
            schema = onnx.defs.get_schema(op_type, self.opset, "")
        except onnx.defs.SchemaError:
            raise Impossible from None
        if self.rare:  # a reader of the graph may have defaults of its own
            attributes = {
                key: setting
                for key, setting in attributes.items()
                if not _is_default(schema, key, setting) or self.chance(0.5)
            }
        names = [value.name if value else "" for value in inputs]
        while names and not names[-1]:
            names.pop()
        outputs = [self.fresh("v") for _ in range(count)]
        node = helper.make_node(op_type, names, outputs, **attributes)
        node.name = f"{op_type}_{self.counter[0]}" if self.chance(0.9) else ""
        types = {v.name: helper.make_tensor_type_proto(v.dtype, v.shape) for v in inputs if v}
        data = {n: numpy_helper.from_array(self.constants[n], n) for n in names if n in self.constants}
        imports = [helper.make_opsetid("", self.opset)]
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, imports, 10)
        self.nodes.append(node)
        made = [self._value(name, inferred.get(name), bound) for name in outputs]
        for value in made:
            known = None not in value.shape
            (self.values if known else self.ends).append(value)
        return made

    def opaque(self, node: onnx.NodeProto, made: Sequence[Value]) -> None:
        """Add a node whose results' types are known already."""
        self.nodes.append(node)
        self.values += made

    def _value(self, name: str, inferred: onnx.TypeProto | None, bound: float) -> Value:
        if inferred is None or not inferred.HasField("tensor_type"):
            return Value(name, TensorProto.UNDEFINED, (None,), bound)
        tensor = inferred.tensor_type
        if not tensor.HasField("shape"):
            return Value(name, TensorProto.UNDEFINED, (None,), bound)
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
        return Value(name, tensor.elem_type, shape, bound)


def _is_default(schema: onnx.defs.OpSchema, key: str, setting: object) -> bool:
    attribute = schema.attributes.get(key)
    if attribute is None or attribute.required or not attribute.default_value.type:
        return False
    default = helper.get_attribute_value(attribute.default_value)
    return (default.decode() if isinstance(default, bytes) else default) == setting


def _primes(size: int) -> list[int]:
    found, divisor = [], 2
    while size > 1:
        while size % divisor == 0:
            found.append(divisor)
            size //= divisor
        divisor += 1
    return found
