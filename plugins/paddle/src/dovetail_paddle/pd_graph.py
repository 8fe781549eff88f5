"""Construction of `pd_op` graphs: nodes of the domains `pd_op` and `builtin`, with the declared types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dovetail.ir import FreshNames

from dovetail_paddle.element_types import onnx_type

if TYPE_CHECKING:
    import onnx_ir as ir


PD_OP = "pd_op"
BUILTIN = "builtin"
UNKNOWN = "paddle"
"""Domain of legacy operators that the translator does not support."""

SOURCE = "paddle.source"
STRUCT = "paddle.struct_name"
"""Metadata keys of nodes: the source line, and the layer."""


class TensorInfo(NamedTuple):
    """The type of a value.

    Attributes:
        dtype: The name of its element type; empty if unknown.
        shape: Its extents, -1 for an open one; None if the rank is unknown.
        is_list: Whether it is a list of tensors, or a tensor array.
    """

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    is_list: bool = False


class PdGraphs:
    """Builder of the nodes and values of one program, with unique names across bodies."""

    def __init__(self) -> None:
        self._values = FreshNames()
        self._nodes = FreshNames()
        self._results: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names for the program's results."""
        for name in names:
            self._values.reserve(name)
            self._results.add(name)

    def result_name(self, wanted: str) -> str:
        """Return the name of a result: `wanted` if it is reserved and not used yet."""
        if wanted in self._results:
            self._results.remove(wanted)
            return wanted
        return self.value_name(wanted)

    def value_name(self, wanted: str) -> str:
        """Return an unused value name, `wanted` if it is free."""
        return self._values.fresh(wanted)

    def value(self, name: str, info: TensorInfo) -> ir.Value:
        """Create a value without a producer: an input of a graph."""
        import onnx_ir as ir

        value = ir.Value(name=self.value_name(name))
        set_type(value, info)
        return value

    def node(
        self,
        op_type: str,
        operands: Sequence[ir.Value | None],
        attributes: Mapping[str, ir.Attr],
        results: Sequence[tuple[str, TensorInfo]],
        *,
        domain: str = PD_OP,
        source: str = "",
        struct: str = "",
    ) -> ir.Node:
        """Create a node outside of any graph.

        Args:
            op_type: Its operator.
            operands: Its operands, None for a missing one.
            attributes: Its attributes by name.
            results: The wanted names and the types of its results.
            domain: The domain of its operator.
            source: Its source line.
            struct: Its layer.
        """
        import onnx_ir as ir

        outputs = [self.value(name, info) for name, info in results]
        if op_type == "fetch":
            outputs[0].name = self.result_name(attributes["name"].as_string())
        name = self._nodes.fresh(op_type)
        node = ir.Node(domain, op_type, list(operands), attributes.values(), outputs=outputs, name=name)
        if source:
            node.metadata_props[SOURCE] = source
        if struct:
            node.metadata_props[STRUCT] = struct
        return node

    def own_results(
        self, values: Sequence[ir.Value], nodes: list[ir.Node], inputs: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return distinct results produced by a body; copies of outer values are appended to `nodes`."""
        own = {id(output) for node in nodes for output in node.outputs} | set(map(id, inputs))
        found = []
        for value in values:
            if id(value) in own:
                own.discard(id(value))
            else:
                node = self.node("assign", [value], {}, [(f"{value.name}.copy", TensorInfo())])
                nodes.append(node)
                value, node.outputs[0].type, node.outputs[0].shape = node.outputs[0], value.type, value.shape
            found.append(value)
        return found


def set_type(value: ir.Value, info: TensorInfo) -> None:
    """Set the declared type of a value."""
    import onnx_ir as ir

    dtype = onnx_type(info.dtype)
    if dtype is None:
        return
    tensor = ir.TensorType(dtype)
    value.type = ir.SequenceType(tensor) if info.is_list else tensor
    if info.shape is not None and not info.is_list:
        value.shape = ir.Shape([None if extent < 0 else extent for extent in info.shape])


def operands(node: ir.Node) -> Sequence[ir.Value]:
    """Return the operands of a node without missing operands."""
    return cast("Sequence[ir.Value]", node.inputs)


def attribute(name: str, value: Any, element: str = "", is_array: bool = False) -> ir.Attr:
    """Return an attribute of a node.

    Args:
        name: Its name.
        value: Its value.
        element: Its element type as in `Argument.element`; if empty, that of the value.
        is_array: Whether it is an array; needed for an empty one.
    """
    import numpy as np
    import onnx_ir as ir

    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.Tensor(value))
    if isinstance(value, (list, tuple)) or is_array:
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        if not element:
            kinds = {type(item) for item in items}
            element = "str" if kinds == {str} else "float" if float in kinds else "int"
        if element in ("str", "dtype"):
            return ir.AttrStrings(name, [str(item) for item in items])
        if element == "float":
            return ir.AttrFloat32s(name, [float(item) for item in items])
        return ir.AttrInt64s(name, [int(item) for item in items])
    if isinstance(value, bool) or element == "bool":
        return ir.AttrInt64(name, int(bool(value)))
    if element == "float" or isinstance(value, float):
        return ir.AttrFloat32(name, float(value))
    if element == "int" or isinstance(value, int):
        return ir.AttrInt64(name, int(value))
    return ir.AttrString(name, str(value))
