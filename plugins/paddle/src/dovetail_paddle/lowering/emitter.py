"""Emission of ONNX nodes, and the mapping from `pd_op` values to lowered values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from dovetail.ir import FreshNames, name_of
from dovetail.planning import set_origin

from dovetail_paddle.lowering.op import constant_of
from dovetail_paddle.pd_graph import BUILTIN, attribute, operands

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


OPSET = 18
"""Emitted version of the default domain, which every engine supports."""
OPSET_BFLOAT16 = 22
"""Version for programs with bfloat16, the first one in which convolutions and pooling accept it."""

_SHARED_UP_TO = 1024  # bytes; equal constants up to this size share an initializer


class GraphEmitter:
    """Collects nodes, graph by graph, and the initializers of the main graph.

    Args:
        opset: The version of the default domain.

    Attributes:
        opset: The version of the default domain.
        names: Names of values and nodes.
        nodes: Nodes of the current graph.
        initializers: Constants and parameters of the main graph; bodies capture them.
        source: The `pd_op` node that is being lowered.
    """

    def __init__(self, opset: int = OPSET) -> None:
        self.opset = opset
        self.names = FreshNames()
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.source: ir.Node | None = None
        self._values: dict[ir.Value, ir.Value] = {}
        self._lists: dict[ir.Value, list[ir.Value]] = {}
        self._constants: dict[tuple, ir.Value] = {}
        self._labels: set[str] = set()
        self._wide: dict[ir.Value, ir.Value] = {}
        self._integers: dict[ir.Value, ir.Value] = {}

    def __call__(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        outputs: int = 1,
        domain: str = "",
    ) -> Any:
        """Append a node; return its output, or a tuple for several outputs.

        Attributes that are None are omitted.
        """
        import onnx_ir as ir

        label = cast("str", self.source.name) if self.source is not None else op_type
        made = [
            ir.AttrGraph(name, value) if isinstance(value, ir.Graph) else attribute(name, value)
            for name, value in (attributes or {}).items()
            if value is not None
        ]
        name = self._name(label, op_type)
        values = [ir.Value(name=self.names.fresh(f"{label}.{op_type}")) for _ in range(outputs)]
        node = ir.Node(domain, op_type, list(inputs), made, outputs=values, name=name)
        if self.source is not None:
            node.metadata_props.update(self.source.metadata_props)
            set_origin(node, (label,))
        self.nodes.append(node)
        return values[0] if outputs == 1 else tuple(values)

    def _name(self, label: str, op_type: str) -> str:
        """Return a node name: the label for the first node of an operator, a derived fresh name for others."""
        if label in self._labels:
            return self.names.fresh(f"{label}/{op_type}")
        self._labels.add(label)
        if self.source is not None:
            self.names.reserve(label)
            return label
        return self.names.fresh(label)

    def constant(self, array: np.ndarray, name: str = "") -> ir.Value:
        """Create an initializer; small equal ones are shared."""
        import onnx_ir as ir

        key = (array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= _SHARED_UP_TO else None
        if key in self._constants:
            return self._constants[key]
        tensor = ir.Tensor(array, name=self.names.fresh(name or "constant"))
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor
        )
        self.initializers.append(value)
        if key is not None:
            self._constants[key] = value
        return value

    def ints(self, items: Sequence[int]) -> ir.Value:
        """Create an int64 list constant."""
        import numpy as np

        return self.constant(np.array(items, np.int64))

    def scalar(self, number: float, dtype: ir.DataType) -> ir.Value:
        """Create a scalar constant of an element type."""
        import numpy as np

        return self.constant(np.array(number).astype(dtype.numpy()))

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Emit a cast to an element type."""
        return self("Cast", [value], {"to": int(dtype)})

    def narrow(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Cast an int64 value to the declared integer type; `wide` recovers the original without a node."""
        import onnx_ir as ir

        if dtype == ir.DataType.INT64:
            return value
        narrowed = self.cast(value, dtype)
        self._wide[narrowed] = value
        return narrowed

    def wide(self, value: ir.Value) -> ir.Value | None:
        """Return the int64 value that `value` was narrowed from, or None."""
        return self._wide.get(value)

    def as_floats(self, integers: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Cast quantized integers to the declared float type; `integers` recovers them without a node."""
        floats = self.cast(integers, dtype)
        self._integers[floats] = integers
        return floats

    def integers(self, value: ir.Value) -> ir.Value | None:
        """Return the quantized integers that `value` holds as floats, or None."""
        return self._integers.get(value)

    def lowered(self, value: ir.Value) -> ir.Value:
        """Return the lowered form of a `pd_op` value; constants become initializers on first use."""
        found = self._values.get(value)
        if found is None:
            array = constant_of(value)
            if array is None:
                raise KeyError(f"'{value.name}' has not been lowered")
            found = self._values[value] = self.constant(array, name_of(value))
        return found

    def items(self, value: ir.Value) -> list[ir.Value] | None:
        """Return the lowered items of a `pd_op` list; None if it is not a list, such as a tensor array."""
        producer = value.producer()
        if producer is not None and (producer.domain, producer.op_type) == (BUILTIN, "combine"):
            return [self.lowered(item) for item in operands(producer)]
        return self._lists.get(value)

    def bind(self, value: ir.Value, lowered: ir.Value) -> None:
        """Record the lowered form of a value, and give it the original's name and element type."""
        self._values[value] = lowered
        producer = lowered.producer()
        if producer is not None and lowered.type is None:
            lowered.name = self.names.fresh(name_of(value))
        if lowered.type is None:
            lowered.type = value.type

    def bind_list(self, value: ir.Value, items: Sequence[ir.Value]) -> None:
        """Record the lowered form of a list."""
        self._lists[value] = list(items)

    @contextmanager
    def body(self) -> Iterator[list[ir.Node]]:
        """Collect the nodes emitted inside the context as a body."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer
