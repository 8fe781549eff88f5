"""Decompositions: operators as functions of ONNX operators, the fallback on every backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.text import did_you_mean

from dovetail_kernels.operator_files.entries import OperatorEntry, OperatorFile
from dovetail_kernels.operator_files.schemas import attribute_of, attribute_type

if TYPE_CHECKING:
    import onnx


def function_of(entry: OperatorEntry, file: OperatorFile) -> onnx.FunctionProto:
    """Build the function in the text under `composite:`, in ONNX's text syntax with attributes as `@name`.

    Raises:
        ValueError: The text does not parse, reads an undefined value, lacks an output, or uses an unknown operator.
    """
    import onnx

    imports = f'"": {file.opset}, "{file.domain}": {file.version}'
    attributes = ", ".join(arg.name for arg in entry.attributes if not arg.has_default)
    head = f'<opset_import: [{imports}], domain: "{file.domain}"> {entry.name} '
    given = f"<{attributes}> " if attributes else ""
    inputs, outputs = (", ".join(one.name for one in ports) for ports in (entry.inputs, entry.outputs))
    try:
        function = onnx.parser.parse_function(f"{head}{given}({inputs}) => ({outputs}) {{ {_typed(entry)} }}")
    except onnx.parser.ParseError as error:
        raise ValueError(f"composite: {_first_line(error)}") from None
    defaults = [attribute_of(arg, arg.default) for arg in entry.attributes if arg.has_default]
    function.attribute_proto.extend(defaults)
    _check(function, entry, file)
    return function


def _typed(entry: OperatorEntry) -> str:
    """Add the types of referenced attributes to the text (`x = @beta`), which ONNX's parser requires."""
    import re

    kinds = {arg.name: attribute_type(arg).lower() for arg in entry.attributes}

    def typed(match: re.Match[str]) -> str:
        name = match["attribute"]
        if name not in kinds:
            raise ValueError(f"composite: there is no attribute '{name}'{did_you_mean(name, kinds)}")
        return f"{match['key']}: {kinds[name]} = @{name}"

    return re.sub(r"(?P<key>\w+)\s*(?::\s*\w+\s*)?=\s*@(?P<attribute>\w+)", typed, entry.body)


def _check(function: onnx.FunctionProto, entry: OperatorEntry, file: OperatorFile) -> None:
    import onnx

    known = {""} | {arg.name for arg in entry.inputs}
    for node in function.node:
        for name in node.input:
            if name not in known:
                raise ValueError(
                    f"composite: {node.op_type} reads '{name}', which nothing computes{did_you_mean(name, known)}"
                )
        known.update(node.output)
        own = node.domain == file.domain
        if own and node.op_type == entry.name:
            raise ValueError("composite: it uses itself")
        if own and node.op_type not in file.entries:
            raise ValueError(
                f"composite: there is no operator '{node.op_type}'{did_you_mean(node.op_type, file.entries)}"
            )
        if not own and not onnx.defs.has(node.op_type, file.opset, node.domain):
            names = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
            near = did_you_mean(node.op_type, names)
            raise ValueError(f"composite: opset {file.opset} has no operator '{node.op_type}'{near}")
    missing = [output.name for output in entry.outputs if output.name not in known]
    if missing:
        raise ValueError(f"composite: nothing computes the output '{missing[0]}'")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "it cannot be parsed"


Functions = Mapping[tuple[str, str], "onnx.FunctionProto"]


def flattened(function: onnx.FunctionProto, functions: Functions) -> onnx.FunctionProto:
    """Inline the calls of other functions in a function.

    Args:
        function: The function, which is not changed.
        functions: The functions that it may call, by domain and name; each states its default attributes.

    Raises:
        ValueError: A function calls itself, directly or indirectly.
    """
    import onnx

    made = onnx.FunctionProto()
    made.CopyFrom(function)
    del made.node[:]
    made.node.extend(_nodes(function, functions, (), "", {}, {}))
    return made


def _nodes(
    function: onnx.FunctionProto,
    functions: Functions,
    calls: tuple[tuple[str, str], ...],
    prefix: str,
    names: Mapping[str, str],
    attributes: Mapping[str, onnx.AttributeProto],
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a function inlined with these input and output names and these attributes."""
    import onnx

    own = (function.domain, function.name)
    if own in calls:
        path = " > ".join(name for _, name in (*calls[calls.index(own) :], own))
        raise ValueError(f"composite: {path} call each other in a circle")

    def renamed(name: str) -> str:
        return names.get(name, f"{prefix}{name}") if name else ""

    for index, node in enumerate(function.node):
        called = functions.get((node.domain, node.op_type))
        if called is None:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.input[:], copy.output[:], copy.attribute[:]
            copy.input.extend(map(renamed, node.input))
            copy.output.extend(map(renamed, node.output))
            copy.attribute.extend(_bound(node, attributes) if calls else node.attribute)
            yield copy
            continue
        inner = {name: renamed(given) for name, given in zip(called.input, node.input, strict=False)}
        inner |= {name: renamed(given) for name, given in zip(called.output, node.output, strict=False)}
        given = {one.name: one for one in called.attribute_proto}
        given |= {one.name: one for one in (_bound(node, attributes) if calls else node.attribute)}
        yield from _nodes(called, functions, (*calls, own), f"{prefix}{node.op_type}_{index}_", inner, given)


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> Iterator[onnx.AttributeProto]:
    """Yield the attributes of a node in a called function, with references replaced by the call's values."""
    import onnx

    for one in node.attribute:
        if not one.ref_attr_name:
            yield one
            continue
        given = attributes.get(one.ref_attr_name)
        if given is not None:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given)
            copy.name = one.name
            yield copy
