"""Input and output of a decomposition: a node, by the names of its schema, and the nodes that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from dovetail.ir import dtype_of, is_onnx
from dovetail_onnx.signatures import find_signature

from dovetail_transforms.lowering.node_facts import attribute, constant, extents, rank
from dovetail_transforms.rewriting import NotRewritten, Replacement
from dovetail_transforms.rewriting.node_inference import infer_outputs

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import FreshNames
    from dovetail_onnx.signatures import Signature


Size = Any
"""An extent: an `int` where it is known, else a value of int64 with one element."""


def result_of(node: ir.Node) -> ir.Value | None:
    """Return the first output that is read or leaves the graph: the nodes in the place of `node` compute no other."""
    return next(filter(_is_read, node.outputs), None)


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def operator_of(node: ir.Node) -> str:
    """Return the key of the table: the operator, with its domain unless that is the default one."""
    return node.op_type if is_onnx(node) else f"{node.domain}.{node.op_type}"


class Formula(Replacement):
    """Builds the nodes that compute what one node computes.

    Ports and attributes are read by the names that ONNX Runtime's schema gives them, with the schema's defaults. New
    values have types at once, and shapes where onnx infers them: `op.Add(x, y).dtype`.
    """

    def __init__(self, node: ir.Node, names: FreshNames, version: int):
        super().__init__(node, names, version)
        found = find_signature(node.domain, node.op_type, None)
        assert found is not None, "the table lists operators with schemas"
        self._signature: Signature = found
        self._scalars: dict[tuple[float, Any], ir.Value] = {}
        self._sizes: dict[tuple[int, int], ir.Value] = {}

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Make a node of an operator by name, and infer the types of its results."""
        made = super().make(op_type, inputs, outputs, domain, **attributes)
        infer_outputs(self.nodes[-1], self.version)
        return made

    def results(self, rule: Callable[[Formula], Any]) -> list[ir.Value | None]:
        """Return the values that a rule builds: a new one for every output that is read.

        An input, or a value that already is another output, goes through a node. Nodes that nothing reads are dropped.

        Raises:
            NotRewritten: The rule refuses the node.
        """
        returned = rule(self)
        values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        made = {id(output) for new in self.nodes for output in new.outputs}
        results: list[ir.Value | None] = []
        for value, output in zip(values, self.node.outputs):
            if value is None or not _is_read(output):
                results.append(None)
                continue
            passed = id(value) not in made
            made.discard(id(value))
            results.append(self.Identity(value) if passed else value)
        self._drop_unread({id(value) for value in results})
        return results

    def _drop_unread(self, read: set[int]) -> None:
        kept = []
        for new in reversed(self.nodes):
            if any(id(value) in read for value in new.outputs):
                read.update(id(value) for value in new.inputs)
                kept.append(new)
                continue
            for index in range(len(new.inputs)):
                new.replace_input_with(index, None)
        self.nodes[:] = reversed(kept)

    # The node

    def refuse(self, why: str) -> NoReturn:
        """Refuse the node.

        Raises:
            NotRewritten: Always.
        """
        raise NotRewritten(why)

    def refuse_if(self, condition: bool, why: str) -> None:
        """Refuse the node under a condition."""
        if condition:
            self.refuse(why)

    def has_input(self, name: str) -> bool:
        """Check whether the operator has a port; operators that share a rule differ in some."""
        return name in self._inputs

    def input(self, name: str) -> ir.Value | None:
        """Return the input of a port; None if it is absent, as ports of newer definitions are in an older library."""
        index = self._inputs.get(name, len(self.node.inputs))
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def required(self, name: str) -> ir.Value:
        """Return the input of a port that this form of the operator must have."""
        value = self.input(name)
        if value is None:
            self.refuse(f"it has no input '{name}'")
        if value.type is None:
            self.refuse(f"the type of its input '{name}' is unknown")
        return value

    @cached_property
    def _inputs(self) -> dict[str, int]:
        return {port.name: index for index, port in enumerate(self._signature.inputs)}

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, its default in the schema, or `default`, which is that of newer attributes, too."""
        return attribute(self.node, name, self._signature.defaults.get(name, default))

    def is_read(self, name: str) -> bool:
        """Check whether an output is read or leaves the graph; one that the operator does not have is not."""
        ports = zip(self._signature.outputs, self.node.outputs)
        return any(port.name == name and _is_read(value) for port, value in ports)

    def core(self, value: ir.Value) -> ir.Value:
        """Give the name of the node to the one that computes `value`, not to the one that computes the result."""
        producer = value.producer()
        assert producer is not None, "it was made here"
        producer.name = self.node.name
        return value

    def fresh(self, what: str) -> str:
        """Return an unused name for a value or a node of a body."""
        return self._names.fresh(f"{self.node.name or self.node.op_type}_{what}")

    # Constants

    def tensor(self, array: np.ndarray, what: str) -> ir.Value:
        """Create a constant of an array."""
        import onnx_ir as ir

        return self.constant(ir.tensor(array), what)

    def integers(self, numbers: Iterable[int], what: str) -> ir.Value:
        """Create a constant list of int64."""
        import numpy as np

        return self.tensor(np.array(list(numbers), np.int64), what)

    def number(self, number: float, like: ir.Value | ir.DataType, what: str = "number") -> ir.Value:
        """Create a constant without axes, in the element type of `like`; one for all its uses."""
        import numpy as np
        import onnx_ir as ir

        dtype = like if isinstance(like, ir.DataType) else dtype_of(like)
        if (number, dtype) not in self._scalars:
            value = self.constant(ir.tensor(np.array(number, dtype.numpy()), dtype=dtype), what)
            self._scalars[number, dtype] = value
        return self._scalars[number, dtype]

    def known(self, value: ir.Value | None) -> np.ndarray | None:
        """Return the content of a constant; None for any other value."""
        return constant(value, self.version)

    # Types

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return `x` in another element type."""
        return x if x.dtype == dtype else self.Cast(x, to=int(dtype))

    def wide(self, x: ir.Value) -> ir.Value:
        """Return `x` in the type in which kernels compute: float32, or float64 as it is."""
        import onnx_ir as ir

        return x if dtype_of(x) == ir.DataType.DOUBLE else self.cast(x, ir.DataType.FLOAT)

    def wide_or_none(self, name: str) -> ir.Value | None:
        """Return an optional input in the type in which kernels compute."""
        value = self.input(name)
        return None if value is None else self.wide(value)

    # Shapes

    def rank(self, x: ir.Value) -> int:
        """Return the number of axes; refuses a node for which it is unknown."""
        found = rank(x)
        if found is None:
            self.refuse(f"the rank of '{x.name}' is unknown")
        return found

    def extent(self, x: ir.Value, axis: int) -> int | None:
        """Return an extent; None if it is open."""
        known = extents(x)
        return None if known is None or axis >= len(known) else known[axis]

    def required_extent(self, x: ir.Value, axis: int, what: str) -> int:
        """Return an extent that the nodes are built from."""
        found = self.extent(x, axis)
        if found is None:
            self.refuse(f"the {what} is open")
        return found

    def size(self, x: ir.Value, axis: int) -> Size:
        """Return an extent as a number, or computed: of an input of the graph where one has an extent of that name.

        Computations on sizes then depend on no result, and can run before everything else.
        """
        found = self.extent(x, axis)
        if found is not None:
            return found
        axis %= self.rank(x)
        named = self.named(x, axis)
        source = None if named is None or isinstance(named, int) else self._named_inputs.get(named.value or "")
        value, place = source or (x, axis)
        if (id(value), place) not in self._sizes:
            self._sizes[id(value), place] = self.Shape(value, start=place, end=place + 1)
        return self._sizes[id(value), place]

    @cached_property
    def _named_inputs(self) -> dict[str, tuple[ir.Value, int]]:
        """The inputs of the graph that have extents with names, by these names, each with the axis."""
        found: dict[str, tuple[ir.Value, int]] = {}
        graph = self.node.graph
        for value in () if graph is None else graph.inputs:
            for place, extent in enumerate(value.shape or ()):
                if not isinstance(extent, int) and extent.value and value.const_value is None:
                    found.setdefault(extent.value, (value, place))
        return found

    def as_value(self, size: Size) -> ir.Value:
        """Return an extent as a list of int64."""
        return self.integers([size], "size") if isinstance(size, int) else size

    def plus(self, one: Size, other: Size) -> Size:
        """Return the sum of two extents."""
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        if one == 0 or other == 0:
            return other if isinstance(one, int) and one == 0 else one
        return self.Add(self.as_value(one), self.as_value(other))

    def shape(self, sizes: Sequence[Size]) -> ir.Value:
        """Return a list of extents as a value; 0 and -1 mean what Reshape says."""
        if all(isinstance(size, int) for size in sizes):
            return self.integers(sizes, "shape")
        parts: list[ir.Value] = []
        waiting: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                waiting.append(size)
                continue
            if waiting:
                parts.append(self.integers(waiting, "shape"))
                waiting = []
            parts.append(size)
        if waiting:
            parts.append(self.integers(waiting, "shape"))
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)

    def of_shape(self, x: ir.Value, sizes: Sequence[Size | None]) -> ir.Value:
        """Return `x` with the extents that are known of it, or their names: onnx infers none where one is computed."""
        import onnx_ir as ir

        x.shape = ir.Shape([size if isinstance(size, (int, ir.SymbolicDim)) else None for size in sizes])
        return x

    def named(self, x: ir.Value, axis: int) -> int | ir.SymbolicDim | None:
        """Return an extent or its name."""
        return None if x.shape is None else x.shape[axis]

    def shaped_like(self, x: ir.Value, other: ir.Value) -> ir.Value:
        """Return the elements of `x` in the shape of another value."""
        made = self.Reshape(x, self.Shape(other))
        return made if other.shape is None else self.of_shape(made, list(other.shape))

    def reshape(self, x: ir.Value, *sizes: Size) -> ir.Value:
        """Return `x` in another shape: extents, 0 to keep one, -1 for the rest."""
        return self.Reshape(x, self.shape(sizes))

    def expand(self, x: ir.Value, *sizes: Size) -> ir.Value:
        """Return `x`, repeated along axes of extent 1; 1 keeps an extent."""
        return self.Expand(x, self.shape(sizes))

    def slice(self, x: ir.Value, axis: int, start: Size, end: Size, step: int = 1) -> ir.Value:
        """Return a part of `x` along an axis."""
        steps = [] if step == 1 else [self.integers([step], "step")]
        return self.Slice(x, self.as_value(start), self.as_value(end), self.integers([axis], "axis"), *steps)

    def split(self, x: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value]:
        """Return consecutive parts of `x` along an axis."""
        return list(self.Split(x, self.integers(sizes, "sizes"), axis=axis, outputs=len(sizes)))

    def unsqueeze(self, x: ir.Value, *axes: int) -> ir.Value:
        """Return `x` with axes of extent 1."""
        return self.Unsqueeze(x, self.integers(axes, "axes"))

    def squeeze(self, x: ir.Value, *axes: int) -> ir.Value:
        """Return `x` without axes of extent 1."""
        return self.Squeeze(x, self.integers(axes, "axes"))

    def scalar(self, x: ir.Value) -> ir.Value:
        """Return a value of one element without axes; a constant stays one."""
        if rank(x) == 0:
            return x
        known = self.known(x)
        return (
            self.Reshape(x, self.integers([], "scalar")) if known is None else self.tensor(known.reshape(()), "scalar")
        )

    # Arithmetic

    def mean(self, x: ir.Value, *axes: int) -> ir.Value:
        """Return the mean over axes, which stay with extent 1; they are an attribute up to opset 17."""
        if self.version < 18:
            return self.ReduceMean(x, axes=axes, keepdims=1)
        return self.ReduceMean(x, self.integers(axes, "axes"), keepdims=1)

    def total(self, x: ir.Value, *axes: int, keepdims: int = 1) -> ir.Value:
        """Return the sum over axes."""
        return self.ReduceSum(x, self.integers(axes, "axes"), keepdims=keepdims)

    def scaled(self, x: ir.Value, factor: float) -> ir.Value:
        """Return `x` times a number."""
        return x if factor == 1 else self.Mul(x, self.number(factor, x))

    def plus_optional(self, x: ir.Value, other: ir.Value | None) -> ir.Value:
        """Return the sum of two values of which one may be absent."""
        return x if other is None else self.Add(x, other)

    def affine(self, x: ir.Value, scale: ir.Value, shift: ir.Value | None) -> ir.Value:
        """Return `x` times a scale, plus a shift."""
        return self.plus_optional(self.Mul(x, scale), shift)

    def counting(self, size: Size) -> ir.Value:
        """Return 0, 1, 2, ... up to an extent, as int64."""
        import numpy as np

        if isinstance(size, int):
            return self.tensor(np.arange(size, dtype=np.int64), "positions")
        zero, one = self.number(0, _int64()), self.number(1, _int64())
        return self.Range(zero, self.scalar(size), one)


def _int64() -> ir.DataType:
    import onnx_ir as ir

    return ir.DataType.INT64
