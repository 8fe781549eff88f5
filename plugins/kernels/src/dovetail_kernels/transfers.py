"""Conversions of type, layout and memory before and after kernels, shared by all readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dovetail.ir import (
    FLOATS,
    dtype_name,
    dtype_of,
    from_name,
    graph_of,
    input_of,
    insert_after_value,
    producer_of,
    replace_uses_except,
    shape_of,
)
from dovetail.planning import get_placement, set_placement

from dovetail_kernels.keys import ANY, DEVICE, DOMAIN, TO_DEVICE, TO_HOST

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FreshNames

    from dovetail_kernels.library import KernelChoice
    from dovetail_kernels.operator_files.entries import OperatorEntry


_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class Transfers:
    """Inserts conversions before and after nodes, one per value and kind.

    Args:
        names: Generator of names for new values and nodes.

    Attributes:
        count: Number of conversions.
    """

    def __init__(self, names: FreshNames):
        self.count = 0
        self._names = names
        self._made: dict[tuple[int, int, object], ir.Value] = {}
        self._kept: list[ir.Value] = []  # keeps values alive, so that their ids stay unique
        self._behind_kernels: list[ir.Node] = []
        self._undone: dict[int, tuple[str, ir.Node]] = {}  # by result: the original form, and the conversion back

    def around(self, node: ir.Node, entry: OperatorEntry | None, choice: KernelChoice) -> None:
        """Convert a node's inputs to the kernel's type, layout and memory, and its results back for their readers."""
        as_they_are = entry.skip_transform if entry is not None else frozenset()
        names = [arg.name for arg in entry.inputs] if entry is not None else []
        cast = entry.support_trans_dtype if entry is not None else frozenset()
        turned, device = choice.key.layout == "NHWC", choice.registered.kernel.in_device_memory and choice.key.device
        for index, value in enumerate(node.inputs):
            name = names[min(index, len(names) - 1)] if names else ""
            if value is None:
                continue
            if name not in as_they_are and _changes_type(value, choice, name in cast):
                value = self._cast(node, value, choice.key.type)
            if name not in as_they_are and turned and _has_four_axes(value):
                value = self._transposed(node, value, _TO_NHWC)
            if device:
                value = self._before(node, value, TO_DEVICE, {DEVICE: device}, device, value.shape, value.dtype, DOMAIN)
            node.replace_input_with(index, value)
        for value in list(node.outputs):
            if turned and _has_four_axes(value):
                self._behind(value, "Transpose", {"perm": _TO_NCHW}, "NHWC", _turned(value, _TO_NHWC))
            if choice.key.type != choice.wanted.type and _is_of(value, choice.wanted.type):
                kind = from_name(choice.key.type)
                self._behind(value, "Cast", {"to": dtype_of(value).value}, choice.key.type, value.shape, kind)
            if device:
                self._behind(value, TO_HOST, {DEVICE: device}, device, value.shape, domain=DOMAIN)

    def remove_unread(self) -> None:
        """Remove unused conversions after kernels: the next kernel takes their input directly."""
        for made in self._behind_kernels:  # conversions of one kernel are listed last to first
            result = made.outputs[0]
            if not result.uses() and not result.is_graph_output():
                graph_of(made).remove(made, safe=True)
                self.count -= 1

    def _cast(self, node: ir.Node, value: ir.Value, to: str) -> ir.Value:
        return self._before(node, value, "Cast", {"to": from_name(to).value}, to, value.shape, from_name(to))

    def _transposed(self, node: ir.Node, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
        return self._before(node, value, "Transpose", {"perm": order}, "NHWC", _turned(value, order), value.dtype)

    def _before(
        self,
        reader: ir.Node,
        value: ir.Value,
        op_type: str,
        attributes: dict,
        to: str,
        shape: ir.Shape | None,
        dtype: ir.DataType | None,
        domain: str = "",
    ) -> ir.Value:
        import onnx_ir as ir

        form, undoing = self._undone.get(id(value), ("", None))
        if undoing is not None and form == to and _same_backend(undoing, reader):
            return input_of(undoing, 0)
        key = (id(value), id(reader.graph), to)
        if key not in self._made:
            name = self._names.fresh(f"{value.name}/{to}")
            made = ir.node(op_type, [value], attributes, domain=domain, name=name)
            made.outputs[0].name, made.outputs[0].shape, made.outputs[0].type = (
                name,
                shape,
                ir.TensorType(cast("ir.DataType", dtype)),
            )
            insert_after_value(graph_of(reader), value, made)
            set_placement(made, get_placement(reader))
            self._kept += (value, made.outputs[0])
            self._made[key] = made.outputs[0]
            self.count += 1
        return self._made[key]

    def _behind(
        self,
        value: ir.Value,
        op_type: str,
        attributes: dict,
        form: str,
        shape: ir.Shape | None,
        dtype: ir.DataType | None = None,
        domain: str = "",
    ) -> None:
        """Convert a result back: the conversion takes over its name and readers, and reads the original value."""
        import onnx_ir as ir

        producer, name = producer_of(value), self._names.fresh(f"{value.name}/{form}")
        graph = graph_of(producer)
        made = ir.node(op_type, [value], attributes, domain=domain, name=name)
        result = made.outputs[0]
        result.shape, result.type = value.shape, value.type
        graph.insert_after(producer, made)
        set_placement(made, get_placement(producer))
        replace_uses_except(value, result, keep=(made,))
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = result
        value.name, result.name = name, value.name
        value.shape = shape
        if dtype is not None:
            value.type = ir.TensorType(dtype)
        self._behind_kernels.append(made)
        if op_type != "Cast":  # a Cast may have rounded
            self._kept.append(result)
            self._undone[id(result)] = form, made
        self.count += 1


def _same_backend(node: ir.Node, other: ir.Node) -> bool:
    """Check whether two nodes are in one graph and on one backend, with only this engine between them."""
    places = [get_placement(each) for each in (node, other)]
    return node.graph is other.graph and len({place and place.backend for place in places}) == 1


def _changes_type(value: ir.Value, choice: KernelChoice, may_be_cast: bool) -> bool:
    """Check whether an input must be cast to the type of the key; only floats of another type are."""
    if choice.key.type == ANY or value.dtype is None:
        return False
    held = dtype_name(value.dtype)
    if held == choice.key.type:
        return False
    both_floats = held in FLOATS and choice.key.type in FLOATS
    return both_floats or may_be_cast or held == choice.wanted.type


def _is_of(value: ir.Value, name: str) -> bool:
    return value.dtype is not None and dtype_name(value.dtype) == name


def _has_four_axes(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) == 4


def _turned(value: ir.Value, order: tuple[int, ...]) -> ir.Shape:
    import onnx_ir as ir

    return ir.Shape([shape_of(value)[axis] for axis in order])
