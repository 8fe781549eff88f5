"""Conversion of weights to the types that their users read, chunk by chunk when they are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
from dovetail.ir import Format, FreshNames, constant_of, float_format, name_of
from dovetail.planning import placement_of
from dovetail_onnx.partial_tensors import PartialTensor, parts_of

from dovetail_precision.exact_constants import keep_exact
from dovetail_precision.ranges.range import ordered_map
from dovetail_precision.rounding import Losses, converter

if TYPE_CHECKING:
    from dovetail.ir import FlatGraph, Model
    from dovetail.passes import Context
    from dovetail_onnx.partial_tensors import TensorIndex

    from dovetail_precision.conversions import PlannedTypes


_PIECE = 1 << 18  # in float32, fits a core's L2 cache


class CastTensor(PartialTensor):
    """`source` rounded to `dtype`, to nearest even. Finite values stay finite: overflow is clamped.

    Attributes:
        source: The tensor to convert.
        sentinel_share: What +-FLT_MAX becomes, as a fraction of the largest finite value of `dtype`.
        losses: Counts of clamped and flushed elements of the last conversion; None before the first.
    """

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType, name: str, sentinel_share: float = 1.0):
        shape = cast("ir.Shape", source.shape)  # nobody changes the shape of a tensor
        super().__init__(self._whole, dtype, shape, name=name)
        self._size = math.prod(shape.numpy())
        self.source = source
        self.sentinel_share = sentinel_share
        self.losses: Losses | None = None

    @property
    def lost(self) -> str:
        """What the last conversion lost; empty before the first."""
        return str(self.losses) if self.losses else ""

    @property
    def size(self) -> int:
        """The number of elements, counted once: it is asked for often."""
        return self._size

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the converted elements in order, `_PIECE` at a time."""
        losses = Losses()
        flat = self.source.numpy().reshape(-1)
        convert = converter(self.dtype.numpy(), self.sentinel_share)
        for piece, lost in ordered_map(
            convert, (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
        ):
            losses += lost
            yield piece
        self.losses = losses

    def parts(self) -> Callable[[TensorIndex], np.ndarray]:
        """Return a function that converts a part."""
        read, convert = parts_of(self.source), converter(self.dtype.numpy(), self.sentinel_share)
        return lambda index: convert(read(index))[0]

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order, little-endian, chunk by chunk."""
        for piece in self.pieces():
            yield piece.view(np.uint8).data

    def tobytes(self) -> bytes:
        """Return all bytes, little-endian."""
        return self._elements().tobytes()

    def _whole(self) -> ir.Tensor:
        return ir.Tensor(self._elements().reshape(self.shape.numpy()), dtype=self.dtype, name=self.name)

    def _elements(self) -> np.ndarray:
        """Return the converted elements in order."""
        if 0 < self.size <= _PIECE:
            flat = self.source.numpy().reshape(-1)
            piece, self.losses = converter(self.dtype.numpy(), self.sentinel_share)(flat)
            return piece
        out = np.empty(self.size, self.dtype.numpy())
        position = 0
        for piece in self.pieces():
            out[position : position + piece.size] = piece
            position += piece.size
        return out


_VECTOR = 65536  # elements
_BOUNDING = frozenset({"Clip", "Max", "Min"})


def convert_weights(model: Model, flat: FlatGraph, types: PlannedTypes, ctx: Context) -> bool:
    """Store every weight, of the main graph and of all bodies, in each type that it is read in.

    A weight that is read in one type is replaced. The conversion itself is lazy: it runs chunk by chunk while the model
    is saved or executed.

    Returns:
        Whether any weight changed.
    """
    changed = False
    accumulates = {backend.name for backend in ctx.backends if backend.accumulate == "float32"}
    overridable = {id(value) for value in flat.graphs[0].inputs}
    for graph in flat.graphs:
        for value in list(graph.initializers.values()):
            if id(value) not in overridable and value.const_value is not None and float_format(value):
                changed |= _convert(model, graph, value, types, accumulates, ctx)
    return changed


def _convert(
    model: Model, graph: ir.Graph, value: ir.Value, types: PlannedTypes, accumulates: set[str], ctx: Context
) -> bool:
    present, weight = float_format(value), constant_of(value)
    assert present is not None
    readers: dict[Format, list[tuple[ir.Node, int]]] = {}
    for node, index in value.uses():
        readers.setdefault(types.wanted(node, index) or present, []).append((node, index))
    wanted = [kind for kind in readers if kind != present]
    if not wanted:
        return False
    ctx.count("weights converted", len(wanted))
    if len(readers) == 1 and not value.is_graph_output():
        tensor = CastTensor(weight, wanted[0].dtype, name_of(value), _sentinel_share(readers[wanted[0]]))
        value.const_value, value.dtype = tensor, tensor.dtype
        _keep_digits(value, readers[wanted[0]], accumulates, ctx)
        return True
    for kind in wanted:
        name = ctx.analysis(FreshNames, model).fresh(f"{value.name}_{kind}")
        version = _version(graph, value, name, kind, _sentinel_share(readers[kind]))
        _keep_digits(version, readers[kind], accumulates, ctx)
        for node, index in readers[kind]:
            node.replace_input_with(index, version)
    users = {kind: nodes[0][0].name or "" for kind, nodes in readers.items()}
    ctx.remark(
        "passed",
        readers[wanted[0]][0][0],
        "weight-versions",
        f"weight '{value.name}' is stored in {' and '.join(sorted(map(str, {*wanted, present})))}: it is read in each",
        because=tuple(users.values()),
    )
    return True


def _keep_digits(value: ir.Value, readers: list[tuple[ir.Node, int]], accumulates: set[str], ctx: Context) -> None:
    """Keep the float32 values of biases, scales and bounds for engines that accumulate in float32.

    A rounded bias is off by the same amount in every element it is added to. Only vectors and scalars are kept: the
    rounding errors of larger weights average out.
    """
    import numpy as np

    tensor = value.const_value
    assert isinstance(tensor, CastTensor)
    if (
        tensor.source.dtype.name != "FLOAT"
        or not 0 < tensor.size <= _VECTOR
        or sum(e > 1 for e in tensor.shape.numpy()) > 1
    ):
        return
    if not all(placement_of(node).backend in accumulates for node, _ in readers):
        return
    elements = tensor.source.numpy()
    if not np.array_equal(tensor.numpy().astype(np.float32), elements):
        keep_exact(value, elements)
        ctx.count("constants kept in float32")


def _sentinel_share(readers: list[tuple[ir.Node, int]]) -> float:
    """Return what +-FLT_MAX becomes, as a fraction of the largest finite value of the new type.

    A clip bound becomes the largest value (+-65504 in float16). A mask becomes half of it: the full value plus a score
    would be infinite, and a Softmax over a row of infinities gives NaNs.
    """
    return 1.0 if any(node.op_type in _BOUNDING for node, _ in readers) else 0.5


def _version(graph: ir.Graph, value: ir.Value, name: str, kind: Format, sentinel_share: float) -> ir.Value:
    import onnx_ir as ir

    tensor = CastTensor(constant_of(value), kind.dtype, name, sentinel_share)
    version = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
    graph.register_initializer(version)
    return version
