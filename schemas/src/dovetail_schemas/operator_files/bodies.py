"""Decompositions: an operator as a function of ONNX operators, which every backend can fall back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.suggestions import did_you_mean

from dovetail_schemas.operator_files.entries import Entry, OperatorFile
from dovetail_schemas.operator_files.schemas import attribute_of, attribute_type

if TYPE_CHECKING:
    import onnx


def function_of(entry: Entry, file: OperatorFile) -> onnx.FunctionProto:
    """The function that the text under `composite:` describes: nodes as ONNX writes them, attributes as `@name`.

    Raises:
        ValueError: The text is not ONNX's, reads what is not there, leaves out an output, or uses an unknown operator.
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


def _typed(entry: Entry) -> str:
    """The text with types behind referenced attributes (`x = @beta`): ONNX's parser wants them."""
    import re

    kinds = {arg.name: attribute_type(arg).lower() for arg in entry.attributes}

    def typed(match: re.Match[str]) -> str:
        name = match["attribute"]
        if name not in kinds:
            raise ValueError(f"composite: there is no attribute '{name}'{did_you_mean(name, kinds)}")
        return f"{match['key']}: {kinds[name]} = @{name}"

    return re.sub(r"(?P<key>\w+)\s*(?::\s*\w+\s*)?=\s*@(?P<attribute>\w+)", typed, entry.body)


def _check(function: onnx.FunctionProto, entry: Entry, file: OperatorFile) -> None:
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
