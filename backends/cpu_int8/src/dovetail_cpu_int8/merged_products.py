"""The `merge-products` pass: products of few bits that read one value as one product."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, input_of
from dovetail.passes import Pass

from dovetail_cpu_int8.backend import is_here, new_nodes
from dovetail_cpu_int8.packed_weights import lazy

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes


_DOMAIN = "com.microsoft"
_OUTER = "N"
_PROJECTIONS = 3  # inputs of GroupQueryAttention that may be one: queries, keys and values


class MergeProducts(Pass):
    """Merge MatMulNBits that read the same value in one format into one.

    Given:  %g = MatMulNBits<N = 1536>(%x, %w1, %s1)   %u = MatMulNBits<N = 1536>(%x, %w2, %s2)
    Result: %gu = MatMulNBits<N = 3072>(%x, Concat(%w1, %w2), Concat(%s1, %s2))   %g, %u = Split(%gu)

    Every output keeps its own integers and scales, so results are the same. A token that is decoded alone leaves so
    little work for each product that starting the threads takes a good part of the time. GroupQueryAttention takes
    queries, keys and values that are one tensor, and needs no Split.
    """

    name = "merge-products"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("matmul-nbits",)
    before = ("integer-gathers",)
    after = ("matmul-nbits",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Merge the products of the main graph."""
        groups: dict[Hashable, list[ir.Node]] = {}
        for node in model.graph:
            if (key := _format(node)) is not None:
                groups.setdefault(key, []).append(node)
        nodes, merged = new_nodes(model, ctx), 0
        for group in groups.values():
            if len(group) < 2:
                continue
            names = ", ".join(f"'{node.name}'" for node in group)
            made = _merge(group, nodes)
            ctx.remark("passed", made, self.name, f"one MatMulNBits computes {names}, which read the same value")
            merged += len(group)
        if merged:
            ctx.count("merged", merged)
            model.touch()
        return merged > 0


def _format(node: ir.Node) -> Hashable:
    """Return what products have in common that may be one; None for a node that stays."""
    if node.op_type != "MatMulNBits" or not is_here(node) or any(value is None for value in node.inputs):
        return None
    read, *stored = [input_of(node, index) for index in range(len(node.inputs))]
    # An embedding reads the tensors of the head as they are.
    if not all(value.is_initializer() and len(value.uses()) == 1 for value in stored):
        return None
    settings = [(name, attribute.value) for name, attribute in node.attributes.items() if name != _OUTER]
    return id(read), *sorted(settings), *((value.dtype, len(value.shape or ())) for value in stored)


def _merge(group: Sequence[ir.Node], nodes: NewNodes) -> ir.Node:
    """Replace products by one, and return it."""
    first = group[0]
    attention = _attention_of(group)
    if attention is not None:
        group = sorted(group, key=lambda node: list(attention.inputs).index(node.outputs[0]))
    columns = [node.attributes.get_int(_OUTER, 0) for node in group]
    stored = [
        nodes.constant(_joined([input_of(node, index) for node in group])) for index in range(1, len(first.inputs))
    ]
    settings = {name: attribute for name, attribute in first.attributes.items() if name != _OUTER}
    name, kind = f"{first.name}_merged", first.outputs[0].dtype or ir.DataType.FLOAT
    shape = _with_columns(first.outputs[0].shape, sum(columns))
    inputs = [input_of(first, 0), *stored]
    result = nodes.add(first, "MatMulNBits", inputs, name, (kind, shape), _DOMAIN, **settings, **{_OUTER: sum(columns)})
    made = result.producer()
    assert made is not None, "the result is computed"
    if attention is not None:
        attention.replace_input_with(0, result)
        for index in range(1, _PROJECTIONS):
            attention.replace_input_with(index, None)
    else:
        sizes = nodes.constant(ir.tensor(columns, dtype=ir.DataType.INT64, name=f"{name}_split_sizes"))
        old = [node.outputs[0] for node in group]
        like = {f"{name}_split_out_{index}": (kind, value.shape) for index, value in enumerate(old)}
        parts = nodes.add_several(first, "Split", [result, sizes], f"{name}_split", like, axis=-1)
        for value, part in zip(old, parts, strict=True):
            nodes.replace_value(value, part)
    for node in group:
        weights = [input_of(node, index) for index in range(1, len(node.inputs))]
        nodes.graph.remove(node, safe=True)
        for weight in weights:
            nodes.drop_unread(weight)
    return made


def _attention_of(group: Sequence[ir.Node]) -> ir.Node | None:
    """Return the attention whose queries, keys and values are these products, and nothing else reads them."""
    uses = [use for node in group for use in node.outputs[0].uses()]
    if len(group) != _PROJECTIONS or any(node.outputs[0].is_graph_output() for node in group):
        return None
    attention = uses[0].node if uses else None
    if attention is None or attention.op_type != "GroupQueryAttention" or not is_here(attention):
        return None
    places = sorted(use.idx for use in uses if use.node is attention)
    return attention if places == list(range(_PROJECTIONS)) and len(uses) == _PROJECTIONS else None


def _with_columns(shape: ir.Shape | None, columns: int) -> ir.Shape | None:
    return None if shape is None else ir.Shape([*list(shape)[:-1], columns])


def _joined(parts: Sequence[ir.Value]) -> ir.LazyTensor:
    """Return constants one below the other, computed when they are written."""
    tensors = [constant_of(part) for part in parts]
    rows = sum(int(tensor.shape.numpy()[0]) for tensor in tensors)
    shape = (rows, *tensors[0].shape.numpy()[1:])
    return lazy(
        lambda: np.concatenate([tensor.numpy() for tensor in tensors]),
        tensors[0].dtype,
        shape,
        f"{parts[0].name}_merged",
    )
