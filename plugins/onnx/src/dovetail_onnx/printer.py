"""Deterministic printer of models as ONNX text, with types and placements in comments.

ONNX's own printer drops annotations, and onnx-ir's prints object identities. `dovetail_onnx.opening.open_model` reads
this text back: placements and inferred types follow a `#`, which starts a comment in ONNX text. Large tensors are
printed without their data, and read back as zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, cast

from dovetail.ir import dtype_name, is_onnx
from dovetail.planning import get_placement, kind_of
from dovetail.text import printable

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_DATA_UP_TO = 8  # elements
# ONNX text has literals for float32 and float64 only; other float types are printed as integers with the same bits.
_BY_BITS = frozenset({
    "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0",
})  # fmt: skip


def print_model(model: Model) -> str:
    """Return the text of `model`, ending in a newline."""
    opsets = ", ".join(f'"{domain}" : {version}' for domain, version in sorted(model.ir.opset_imports.items()))
    lines = [f"<ir_version: {model.ir.ir_version}, opset_import: [{opsets}]>"]
    lines += _graph(model.graph, model.graph.name or "graph", "")
    for function in model.ir.functions.values():
        lines += _function(function)
    return "\n".join(map(printable, lines)) + "\n"


def _graph(graph: ir.Graph, name: str, indent: str) -> Iterator[str]:
    inputs = ", ".join(_declare(value) for value in graph.inputs)
    outputs = ", ".join(_declare(value) for value in graph.outputs)
    yield f"{indent}{_identifier(name)} ({inputs}) => ({outputs})"
    weights = [_initializer(value) for value in graph.initializers.values()]
    tensors = [value.const_value for value in graph.initializers.values()]
    if weights:
        yield f"{indent}<"
        for index, text in enumerate(weights):
            yield f"{indent}  {text}{',' if index < len(weights) - 1 else ''}{_numbers(tensors[index], '  # ')}"
        yield f"{indent}>"
    yield f"{indent}{{"
    for node in graph:
        yield from _node(node, indent + "  ")
    yield f"{indent}}}"


def _function(function: ir.Function) -> Iterator[str]:
    opsets = ", ".join(f'"{domain}" : {version}' for domain, version in sorted(function.opset_imports.items()))
    yield f'<domain: "{function.domain}", opset_import: [{opsets}]>'
    inputs = ", ".join(_identifier(value.name) for value in function.inputs)
    outputs = ", ".join(_identifier(value.name) for value in function.outputs)
    yield f"{_identifier(function.name)} ({inputs}) => ({outputs})"
    yield "{"
    for node in function:
        yield from _node(node, "  ")
    yield "}"


def _node(node: ir.Node, indent: str) -> Iterator[str]:
    outputs = ", ".join(_identifier(value.name) for value in node.outputs)
    inputs = ", ".join("" if value is None else _identifier(value.name) for value in node.inputs)
    label = f"[{_identifier(node.name)}] " if node.name else ""
    operator = f"{node.domain}.{node.op_type}" if not is_onnx(node) else node.op_type
    plain, bodies = [], []
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type.name in ("GRAPH", "GRAPHS"):
            bodies.append(attribute)
        else:
            plain.append(_attribute(attribute))
    head = f"{indent}{label}{outputs} = {operator}"
    if not bodies:
        options = f" <{', '.join(plain)}>" if plain else ""
        yield f"{head}{options} ({inputs}){_comment(node)}"
        return
    yield f"{head} ({inputs}) <{_comment(node)}"
    texts = [[f"{indent}  {text}"] for text in plain]
    for attribute in bodies:
        for body in [attribute.as_graph()] if attribute.type.name == "GRAPH" else attribute.as_graphs():
            lines = list(_graph(body, body.name or attribute.name, indent + "  "))
            lines[0] = f"{indent}  {attribute.name} = {lines[0].lstrip()}"
            texts.append(lines)
    for index, lines in enumerate(texts):
        lines[-1] += "," if index < len(texts) - 1 else ""
        yield from lines
    yield f"{indent}>"


def _comment(node: ir.Node) -> str:
    types = ", ".join(_type(value) for value in node.outputs if value.name)
    text = f"  # {types}"
    placement = get_placement(node)
    if placement is not None:
        text += f" @{placement.backend}"
        if placement.precision:
            text += f" {placement.precision}"
        text += "".join(f" {port}:{kind}" for port, kind in sorted(placement.ports.items()))
        if placement.region is not None:
            text += f" region {placement.region}"
        if kind_of(node) != "data":
            text += f" ({kind_of(node)})"
    held = ((a.name, a.value) for a in node.attributes.values() if a.type.name == "TENSOR" and not a.is_ref())
    return text + "".join(_numbers(tensor, f"; {name} = ") for name, tensor in held)


def _type(value: ir.Value) -> str:
    """Return a type in our notation: `bfloat16[N,8]`."""
    kind = value.type
    if kind is None:
        return "?"
    name = dtype_name(kind.dtype) if kind.__class__.__name__ == "TensorType" else cast("str", type_text(kind))
    return name if value.shape is None else f"{name}[{_extents(value.shape)}]"


def _declare(value: ir.Value) -> str:
    """Return a declaration in ONNX text: `float[N,8] x`."""
    kind = value.type
    if kind is None:
        return _identifier(value.name)
    text = cast("str", type_text(kind))
    if text.startswith("tensor("):
        text = text.removeprefix("tensor(").removesuffix(")")
        # In ONNX text a type without brackets is a scalar, and empty brackets mean unknown rank.
        text += "[]" if value.shape is None else f"[{_extents(value.shape)}]" if len(value.shape) else ""
    return f"{text} {_identifier(value.name)}"


def _extents(shape: ir.Shape) -> str:
    return ",".join("?" if (text := _extent(dim)) == "None" else text for dim in shape)


def _extent(dim) -> str:
    if isinstance(dim, int):
        return str(dim)
    return str(dim.value) if dim.value is None or str(dim.value).isidentifier() else json.dumps(str(dim.value))


def _initializer(value: ir.Value) -> str:
    declared, tensor = _declare(value), value.const_value
    items = None if tensor is None else _items(tensor)
    return declared if items is None else f"{declared} = {{{items}}}"


def _items(tensor: ir.TensorProtocol) -> str | None:
    """Return the elements of a small tensor as literals; None if it is declared without data."""
    if tensor.size > _DATA_UP_TO:
        return None
    if tensor.dtype.name == "STRING":
        texts = tensor.string_data() if hasattr(tensor, "string_data") else tensor.numpy().reshape(-1)
        return ", ".join(json.dumps(text.decode(errors="replace")) for text in texts)
    if tensor.dtype.bitwidth < 8 or tensor.dtype.name.startswith("COMPLEX"):
        return None  # the parser has no literals for these, and miscounts elements that share a byte
    array = tensor.numpy().reshape(-1)
    if tensor.dtype.name in _BY_BITS:
        array = array.view(f"uint{tensor.dtype.bitwidth}")
    return ", ".join(_number(item) for item in array.tolist())


def _numbers(tensor: ir.TensorProtocol | None, label: str) -> str:
    """Return, for a comment, the numbers of a tensor that the text prints as bits; empty for other tensors."""
    if tensor is None or tensor.dtype.name not in _BY_BITS or tensor.size > _DATA_UP_TO:
        return ""
    return label + ", ".join(map(repr, tensor.numpy().reshape(-1).tolist()))


def _number(item: object) -> str:
    return str(int(item)) if isinstance(item, bool) else repr(item)


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"{attribute.name}: {attribute.type.name.lower()} = @{attribute.ref_attr_name}"
    value, kind = attribute.value, attribute.type.name
    if kind == "STRING":
        text = json.dumps(value)
    elif kind == "STRINGS":
        text = f"[{', '.join(json.dumps(item) for item in value)}]"
    elif kind in ("INTS", "FLOATS"):
        text = f"[{', '.join(repr(item) for item in value)}]"
    elif kind == "TENSOR":
        text = _tensor(value)
    elif kind in ("TENSORS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"):
        text = json.dumps(kind.lower())
    else:
        text = repr(value)
    return f"{attribute.name} = {text}"


def _tensor(tensor: ir.TensorProtocol) -> str:
    shape = f"[{','.join(map(str, tensor.shape))}]" if len(tensor.shape) else ""
    return f"{tensor.dtype.name.lower()}{shape} {{{_items(tensor) or ''}}}"


def _identifier(name: str | None) -> str:
    """Return `name`, quoted if it is not an identifier of ONNX text."""
    name = name or ""
    bare = name.replace("_", "a")
    return name if bare.isalnum() and not bare[0].isdigit() else json.dumps(name)


@cache
def _tensor_text(dtype: ir.DataType) -> str:
    lower = dtype.name.lower()
    return f"tensor({lower})"


def type_text(kind: ir.TypeProtocol | None) -> str | None:
    """Return a type in the notation of onnx's schemas: `tensor(float)`, `seq(tensor(int64))`; None if unknown."""
    import onnx_ir as ir

    if kind is None:
        return None
    if isinstance(kind, ir.TensorType):
        return _tensor_text(kind.dtype)
    if isinstance(kind, ir.SparseTensorType):
        return f"sparse_tensor({kind.dtype.name.lower()})"
    if isinstance(kind, (ir.SequenceType, ir.OptionalType)):
        return f"{'seq' if isinstance(kind, ir.SequenceType) else 'optional'}({type_text(kind.elem_type)})"
    raise KeyError(type(kind))
