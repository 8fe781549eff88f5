"""The view of a node for limits, with one set of names for all opsets.

Lookup order of names: facts, `version`, `constants` and `outputs`, attributes (effective values), ports (constant
values). Extents named in a shape precede all of these.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx
from dovetail_onnx.signatures import Opsets, Signature, input_name, port_names, signature

from dovetail_schemas.effective import effective
from dovetail_schemas.operators import is_position, known_names, later_name
from dovetail_schemas.rules import Rule
from dovetail_schemas.terms import ABSENT, Absent, Unknown

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


_SCALAR_TYPES, _LISTS = frozenset({1, 2, 3}), frozenset({6, 7, 8})  # onnx.AttributeProto.AttributeType


def content_names(rule: Rule, facts: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the facts in a rule, and its other names whose value neither types nor attributes determine.

    Their values belong in the cache key. A name given by a shape is an extent, even if a port has that name.
    """
    operator = known_names(rule.domain, rule.op_type)
    known, listed = (operator.ports, operator.attributes) if operator else ((), ())
    names: set[str] = set()
    for row in rule.rows:
        names |= row.names - {name for pattern in row.patterns for name in pattern.names}
        names |= {pattern.target for pattern in row.patterns if pattern.target in listed}
    volatile = (".is_output", ".consumers")
    others = (n for n in names - facts if n in known or is_position(n) or n.endswith(volatile))
    return tuple(sorted(names & facts)), tuple(sorted(others))


def question(node: ir.Node, constants: Collection[str], region: Mapping[str, object] | None) -> tuple:
    """Return the cache key of a verdict, except for facts and the names of `content_names`.

    Computed for every node, once per backend.
    """
    # `data` is the plain dict that `attributes` wraps.
    written = node.attributes.data
    attributes = tuple([(name, attr.type, _content(attr)) for name, attr in written.items()]) if written else ()
    values = tuple([value and (_key(value), is_constant(value, constants)) for value in node.inputs])
    results = tuple([(_key(value), bool(value.name)) for value in node.outputs])
    return (
        node.op_type,
        node.domain,
        node.version,
        attributes,
        values,
        results,
        tuple(sorted(region.items())) if region else None,
    )


def is_constant(value: ir.Value, constants: Collection[str]) -> bool:
    """Check whether a value is known before run time or named in `constants`, without reading its content."""
    if value.const_value is not None:
        return True
    producer = value.producer()
    made = producer is not None and producer.op_type == "Constant" and is_onnx(producer)
    return made or value.name in constants


def _key(value: ir.Value) -> tuple:
    """Return a key of type and shape; for tensors, the element type is enough."""
    kind, shape = value.type, value.shape
    return (
        kind.dtype if kind is not None and kind.__class__.__name__ == "TensorType" else str(kind),
        None if shape is None else shape.dims,
    )


def _content(attribute: ir.Attr) -> object:
    """Return what identifies the value of an attribute that limits may use; none for tensors, graphs and references."""
    if attribute.is_ref():
        return None
    if attribute.type in _SCALAR_TYPES:
        return attribute.value
    if isinstance(attribute.value, array):  # a long list of numbers, which would become an object each
        return hashlib.blake2b(attribute.value, digest_size=16).digest()
    return tuple(attribute.value) if attribute.type in _LISTS else None


Fact = Callable[["ir.Node"], object]
"""A named fact about a node, for limits; None if it is unknown until run time."""

COMMUTATIVE = frozenset({
    "Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
})  # fmt: skip
BROADCASTING = COMMUTATIVE | {
    "Sub", "Div", "Pow", "Mod", "Where", "PRelu", "MatMul", "MatMulInteger", "BitShift",
    "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
}  # fmt: skip
_MOST_ELEMENTS = 1 << 16
_SCALARS = (int, float, str)


class NodeView:
    """The names of one node and their values; a value is computed on first use.

    Args:
        node: The node.
        opsets: The opset imports of the model, for nodes without a version.
        constants: Constants known besides initializers and Constant nodes, by value name.
        facts: Facts by name.
        region: Known facts about its region (`{"last": True}`); None before regions are formed.
        swapped: View a commutative operator with its first two inputs exchanged.
    """

    def __init__(
        self,
        node: ir.Node,
        opsets: Opsets,
        constants: Mapping[str, np.ndarray],
        facts: Mapping[str, Fact],
        region: Mapping[str, object] | None = None,
        swapped: bool = False,
    ):
        self.node = node
        self.op_type = node.op_type
        self.opsets = opsets
        self.region = region
        self._constants, self._facts = constants, facts
        self._swapped = swapped
        self._values: dict[str, object] = {}
        self.inputs = (*node.inputs[1::-1], *node.inputs[2:]) if swapped else tuple(node.inputs)
        self.outputs = tuple(node.outputs)

    @cached_property
    def signature(self) -> Signature | None:
        """The signature of its operator."""
        return signature(self.node, self.opsets)

    @cached_property
    def ports(self) -> dict[str, ir.Value | None]:
        """Its values by port name and by position (`in0`, `out0`)."""
        names_in, names_out = port_names(self.node, self.opsets)
        # Inputs win: before opset 14, BatchNormalization had an input and an output of the same name.
        found = dict(zip((*names_out, *names_in), (*self.outputs, *self.inputs)))
        for kind, values in (("in", self.inputs), ("out", self.outputs)):
            found.update((f"{kind}{i}", value) for i, value in enumerate(values))
        return found

    def swap(self) -> NodeView | None:
        """Return the view with its two inputs exchanged, if that is an equivalent node; else None."""
        if self.op_type not in COMMUTATIVE or not is_onnx(self.node) or len(self.inputs) != 2:
            return None
        return NodeView(self.node, self.opsets, self._constants, self._facts, self.region, not self._swapped)

    def exchanged_ports(self) -> dict[str, str]:
        """Return the names of the first two inputs, each mapped to the other, for a swapped view."""
        first, second = (input_name(index, self.signature) for index in (0, 1))
        return {first: second, second: first, "in0": "in1", "in1": "in0"}

    def __getitem__(self, name: str) -> object:
        if name not in self._values:
            self._values[name] = self._look_up(name)
        return self._values[name]

    def _look_up(self, name: str) -> object:
        if name in self._facts:
            value = self._facts[name](self.node)
            return Unknown(name) if value is None else value
        if name == "version":
            return self.signature.version if self.signature else self.node.version or ABSENT
        if name == "constants":
            return sum(self.is_constant(value) for value in self.inputs)
        if name == "outputs":
            return self.count_outputs()
        port, dot, fact = name.partition(".")
        if port == "region" and dot:
            known = (self.region or {}).get(fact)
            return Unknown(name, "region") if known is None else known
        if dot:
            return self._port_fact(name, port, fact)
        value = effective(self, name) if is_onnx(self.node) else NotImplemented
        return self.written(name) if value is NotImplemented else value

    def _port_fact(self, name: str, port: str, fact: str) -> object:
        value = self.ports.get(port)
        if value is None or (not value.name and fact != "rank"):
            return ABSENT
        if fact == "rank":
            return Unknown(name) if value.shape is None else len(value.shape)
        if fact == "constant":
            return self.is_constant(value)
        return value.is_graph_output() if fact == "is_output" else len(value.uses())

    def written(self, name: str) -> object:
        """Return an attribute or a port's constant value as written; else the attribute's default."""
        for candidate in (name, *(old for old in self.node.attributes if later_name(old) == name)):
            attribute = self.node.attributes.get(candidate)
            if attribute is not None:
                return Unknown(name, "constant") if attribute.is_ref() else _plain(attribute.value, name)
        if name in self.ports:
            value = self.ports[name]
            return ABSENT if value is None else self._content(value, name)
        return self.signature.defaults.get(name, ABSENT) if self.signature else ABSENT

    def _content(self, value: ir.Value, name: str) -> object:
        array = self.constant(value)
        if array is None or array.size > _MOST_ELEMENTS:
            return Unknown(name, "constant")
        return tuple(array.ravel().tolist()) if array.ndim else array.item()

    def constant(self, value: ir.Value | None) -> np.ndarray | None:
        """Return the content of a constant."""
        if value is None:
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        if value.name is not None and value.name in self._constants:
            return self._constants[value.name]
        producer = value.producer()
        if producer is None or producer.op_type != "Constant" or not is_onnx(producer):
            return None
        import numpy as np

        content = next(iter(producer.attributes.values())).value
        return content.numpy() if hasattr(content, "numpy") else np.asarray(content)

    def is_constant(self, value: ir.Value | None) -> bool:
        """Check whether a value is known before run time, without reading its content."""
        return value is not None and is_constant(value, self._constants)

    def count_outputs(self) -> int:
        """Return the number of outputs that are present."""
        return sum(bool(value.name) for value in self.outputs)

    def rank_at(self, index: int) -> int | None:
        """Return the rank of an input; None if unknown."""
        extents = self.extents_at(index)
        return None if extents is None else len(extents)

    def extents_at(self, index: int) -> list | None:
        """Return the extents of an input; None if the rank is unknown."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return None if value is None else extents_of(value)

    def extents(self, target: str) -> list | tuple | Absent | None:
        """Return the subject of a shape pattern: the extents of a port, or the elements of a list attribute.

        A list that was an attribute in an older opset is also accepted as an input. `ABSENT` if the node has neither.
        """
        known = known_names(self.node.domain, self.op_type)
        if target in self.ports and not (known and target in known.attributes):
            value = self.ports[target]
            return ABSENT if value is None else extents_of(value)
        found = self[target]
        if isinstance(found, Unknown):
            return None
        return found if isinstance(found, (Absent, tuple)) else (found,)


def extents_of(value: ir.Value) -> list | None:
    """Return extents as numbers, names of symbolic extents, or None."""
    if value.shape is None:
        return None
    return [extent if isinstance(extent, int) else extent.value for extent in value.shape]


def _plain(value: object, name: str) -> object:
    """Return an attribute's value; tensors, graphs and types have none that a limit could use."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, _SCALARS) for item in value):
        return tuple(value)
    return Unknown(name, "constant")
