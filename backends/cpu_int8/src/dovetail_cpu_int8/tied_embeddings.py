"""The `tie-embeddings` pass: an embedding that is also the head as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, input_of, name_of
from dovetail.passes import Pass
from dovetail.plugin import is_onnx
from dovetail_onnx import PartialTensor, parts_of
from dovetail_transforms import NewNodes

from dovetail_cpu_int8.backend import BACKEND, weights_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_onnx import TensorIndex

_ROWS = 1024  # compared at once
_SAMPLE = 16  # numbers per axis that differ in nearly all pairs of tensors


class TieEmbeddings(Pass):
    """Let the head read the table of the embedding, where both have the same numbers, for weights alone.

    Given:  %e = Gather(Transpose(%w), %i)   %y = MatMul(%x, %w)
    Result: %e = Gather(%table, %i)   %y = MatMul(%x, Transpose(%table)), where %table is %w transposed

    A head with a tensor of its own is tied, too, if that equals the table. The weight is then stored once, and both
    read it in one format.
    """

    name = "tie-embeddings"
    stage = "analyze"
    for_backend = "cpu-int8"
    before = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the heads of the main graph."""
        if not any(backend.name == BACKEND and weights_alone(backend) for backend in ctx.backends):
            return False
        tables = [table for node in model.graph if (table := _table_of(node)) is not None]
        heads: dict[tuple[int, ...], list[tuple[ir.Node, bool]]] = {}
        for node in model.graph if tables else ():
            across = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
            weight = node.inputs[1] if node.op_type in ("Gemm", "MatMul") and is_onnx(node) else None
            if weight is not None and _is_matrix(weight):
                shape = weight.shape.numpy() if weight.shape is not None else ()
                heads.setdefault(shape if across else shape[::-1], []).append((node, across))
        tied, ties = 0, _Ties(model, ctx)
        for table in tables:
            for node, across in heads.get(table.extents, ()):
                if not table.equals(input_of(node, 1), across):
                    continue
                ties.tie(table, node, across)
                why = f"the head is the embedding '{table.value.name}', which is stored once and has one format"
                ctx.remark("passed", node, "tie-embeddings", why)
                tied += 1
        if tied:
            ctx.count("tied", tied)
            model.touch()
        return tied > 0


class _Table(NamedTuple):
    """A table whose rows are gathered.

    Attributes:
        node: The Gather.
        value: The constant.
        transposed: Whether the Gather reads it through a Transpose.
    """

    node: ir.Node
    value: ir.Value
    transposed: bool

    @property
    def extents(self) -> tuple[int, ...]:
        """Number and length of the rows."""
        assert self.value.shape is not None, "a constant has a shape"
        shape = tuple(self.value.shape.numpy())
        return shape[::-1] if self.transposed else shape

    def equals(self, weight: ir.Value, across: bool) -> bool:
        """Check whether a head's weight has the numbers of the table; it is transposed where it is not `across`."""
        if weight is self.value:
            return self.transposed and not across  # else they are tied, or read different numbers
        first, second = constant_of(self.value), constant_of(weight)
        if first.dtype != second.dtype:
            return False
        one, other = _rows_of(first, self.transposed), _rows_of(second, not across)
        rows, length = self.extents
        some = tuple(slice(0, extent, max(1, extent // _SAMPLE)) for extent in (rows, length))
        if not np.array_equal(one(some), other(some)):
            return False
        parts = ((slice(start, start + _ROWS), slice(None)) for start in range(0, rows, _ROWS))
        return all(np.array_equal(one(part), other(part)) for part in parts)


def _rows_of(tensor: ir.TensorProtocol, transposed: bool) -> Callable[[TensorIndex], np.ndarray]:
    """Return a function that gives parts of a matrix, or of the transposed one."""
    read = parts_of(tensor)
    return (lambda index: read(index[::-1]).T) if transposed else read


def _table_of(node: ir.Node) -> _Table | None:
    """Return the table of a Gather of rows; None for other nodes."""
    if node.op_type != "Gather" or not is_onnx(node) or node.attributes.get_int("axis", 0) != 0:
        return None
    if input_of(node, 1).is_initializer():
        return None
    value = input_of(node, 0)
    producer = value.producer()
    if producer is not None and producer.op_type == "Transpose" and _is_matrix(input_of(producer, 0)):
        return _Table(node, input_of(producer, 0), True)
    return _Table(node, value, False) if _is_matrix(value) else None


def _is_matrix(value: ir.Value) -> bool:
    """Check whether a value is a constant matrix of floats that no caller replaces."""
    if not value.is_initializer() or value.is_graph_input() or value.is_graph_output() or value.const_value is None:
        return False
    return value.dtype is not None and value.dtype.is_floating_point() and len(value.const_value.shape) == 2


class _Transposed(PartialTensor):
    """A transposed matrix."""

    def __init__(self, source: ir.TensorProtocol, shape: ir.Shape, name: str):
        super().__init__(self._whole, source.dtype, shape, name=name)
        self._source = source

    def parts(self) -> Callable[[TensorIndex], np.ndarray]:
        """Return a function that gives a part."""
        read = _rows_of(self._source, True)
        return lambda index: read((*index, slice(None))[:2])

    def _whole(self) -> ir.Tensor:
        return ir.Tensor(np.ascontiguousarray(self._source.numpy().T))


class _Ties:
    """Rewrites tables and heads of one model.

    Args:
        model: The model.
        ctx: Its context.
    """

    def __init__(self, model: Model, ctx: Context):
        self._graph, self._nodes = model.graph, NewNodes(model, ctx)
        self._tables: dict[ir.Value, ir.Value] = {}

    def tie(self, table: _Table, head: ir.Node, across: bool) -> None:
        """Let a head read a table; one that is not `across` reads it through a Transpose."""
        rows, weight = self._rows(table), input_of(head, 1)
        if not across:
            like = {f"{rows.name}_columns": (weight.dtype or ir.DataType.FLOAT, weight.shape)}
            (rows,) = self._nodes.add_several(head, "Transpose", [rows], f"{head.name}_transpose", like, perm=[1, 0])
        head.replace_input_with(1, rows)
        self._drop(weight)

    def _rows(self, table: _Table) -> ir.Value:
        """Return the table as a constant with its rows along axis 0, which its Gather reads."""
        if not table.transposed:
            return table.value
        if table.value not in self._tables:
            source, shape = constant_of(table.value), ir.Shape(table.extents)
            name = f"{table.value.name}_rows"
            self._tables[table.value] = self._nodes.constant(_Transposed(source, shape, name))
        rows, read = self._tables[table.value], input_of(table.node, 0)
        if read is not rows:
            table.node.replace_input_with(0, rows)
            transpose = read.producer()
            if transpose is not None and not read.uses() and not read.is_graph_output():
                self._graph.remove(transpose, safe=True)
                self._drop(table.value)
        return rows

    def _drop(self, weight: ir.Value) -> None:
        if not weight.uses():
            del self._graph.initializers[name_of(weight)]
