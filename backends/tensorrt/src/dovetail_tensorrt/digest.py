"""Digest of a region's computation, independent of value names.

A region has the same digest when emitted and when loaded, so an engine file can be compared with its function.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, cast

from dovetail_onnx import tensor_chunks

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_ABSENT = -1


def content_digest(model: Model) -> str:
    """Return the SHA-256, in hexadecimal digits, of a region extracted as a model.

    It covers the nodes in their order with their attributes and bodies, the bytes of weights, which are streamed, the
    types and shapes of inputs, outputs and weights, and the versions of the operators; the names of open extents are
    ignored.
    """
    content = _Content()
    domains = {node.domain or "" for node in model.nodes()}
    versions = {domain or "": version for domain, version in model.ir.opset_imports.items()}
    content.add("opsets", sorted((domain, version) for domain, version in versions.items() if domain in domains))
    content.graph(model.graph)
    return content.hash.hexdigest()


class _Content:
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._values: list[Any] = []  # keeps the values alive, because their ids are in use

    def add(self, *parts: object) -> None:
        text = repr(parts).encode()
        self.hash.update(struct.pack("<q", len(text)))
        self.hash.update(text)

    def graph(self, graph: ir.Graph, body: bool = False) -> None:
        # Inputs are numbered at first use: their number and order may differ between a region and a model with a single
        # region.
        self.add("graph", len(graph))
        for value in graph.inputs if body else ():
            self._new(value)
            self.add("input", *_typed(value))
        for node in graph:
            self._node(node)
        results = list(graph.outputs)
        if not body:
            results = sorted((value for value in results if value.producer() is not None), key=self._number)
        for value in results:
            self.add("output", self._number(value), *_typed(value))

    def _node(self, node: ir.Node) -> None:
        inputs = [self._number(value) for value in _without_trailing(node.inputs)]
        for value in node.outputs:
            self._new(value)
        outputs = [bool(value.name) for value in node.outputs]
        self.add("node", node.domain or "", node.op_type, node.overload or "", inputs, outputs)
        for name in sorted(node.attributes):
            self._attribute(node.attributes[name])

    def _attribute(self, attribute: ir.Attr) -> None:
        import onnx_ir as ir

        kind, value = attribute.type.name, attribute.value
        self.add("attribute", attribute.name, kind)
        if attribute.type is ir.AttributeType.GRAPH:
            self.graph(value, body=True)
        elif attribute.type is ir.AttributeType.GRAPHS:
            for graph in value:
                self.graph(graph, body=True)
        elif attribute.type is ir.AttributeType.TENSOR:
            self._tensor(value)
        elif attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
            # Attributes are float32 in a file, but float64 in memory until written.
            numbers = [value] if attribute.type is ir.AttributeType.FLOAT else list(value)
            self.hash.update(struct.pack(f"<q{len(numbers)}f", len(numbers), *numbers))
        else:
            plain = attribute.type in (ir.AttributeType.INT, ir.AttributeType.STRING)
            self.add(value if plain else [*map(str, value)] if isinstance(value, (list, tuple)) else str(value))

    def _tensor(self, tensor: ir.TensorProtocol) -> None:
        import onnx_ir as ir

        self.add("tensor", tensor.dtype.name, list(tensor.shape.numpy()))
        if tensor.dtype is ir.DataType.STRING:
            self.add([bytes(text) for text in cast("ir.StringTensor", tensor).string_data()])
            return
        for chunk in tensor_chunks(tensor):
            self.hash.update(chunk)

    def _number(self, value: ir.Value | None) -> int:
        if value is None:
            return _ABSENT
        if id(value) not in self._numbers:
            self._new(value)
            if value.const_value is not None and value.producer() is None:
                self._tensor(value.const_value)
            else:
                self.add("input", *_typed(value))
        return self._numbers[id(value)]

    def _new(self, value: ir.Value) -> None:
        self._numbers[id(value)] = len(self._numbers)
        self._values.append(value)


def _without_trailing(inputs: Any) -> list:
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    return given


def _typed(value: ir.Value) -> tuple[str, list[int | str] | None]:
    kind = value.dtype.name if value.dtype is not None else ""
    if value.shape is None:
        return kind, None
    return kind, [extent if isinstance(extent, int) else "?" for extent in value.shape]
