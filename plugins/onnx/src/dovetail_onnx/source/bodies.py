"""Check the numbers of inputs and outputs of bodies against their control-flow nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


_SCAN_WITHOUT_BATCH = 9


def named_bodies_of(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield the bodies of `node` with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


def body_problem(node: onnx.NodeProto, version: int) -> str:
    """Return what is wrong with inputs and outputs of the bodies of a standard operator; empty if nothing is.

    Attributes were checked against the schema before. In a function they may be references, which are not checked.
    """
    if any(attribute.ref_attr_name for attribute in node.attribute):
        return ""
    rule = _RULES.get(node.op_type)
    return rule(node, dict(named_bodies_of(node)), version) if rule else ""


def _if(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    for name, body in bodies.items():
        if body.input:
            return f"has a body '{name}' with {len(body.input)} inputs, where none is taken"
        if problem := _outputs(name, body, len(node.output)):
            return problem
    return ""


def _loop(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    body, carried = bodies["body"], len(node.input) - 2
    if len(body.input) != 2 + carried:
        return f"carries {carried} values, so its body takes {2 + carried} inputs, not {len(body.input)}"
    if len(body.output) < 1 + carried or len(body.output) - 1 < len(node.output):
        needed = 1 + max(carried, len(node.output))
        return f"needs a body with at least {needed} outputs, and that has {len(body.output)}"
    return ""


def _scan(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], version: int) -> str:
    body = bodies["body"]
    taken = len(node.input) - (version < _SCAN_WITHOUT_BATCH)
    scanned = next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")
    if not 1 <= scanned <= taken:
        return f"scans {scanned} of its {taken} inputs"
    if len(body.input) != taken:
        return f"has {taken} inputs, and a body with {len(body.input)}"
    if len(body.output) < taken - scanned:
        return f"carries {taken - scanned} states, and has a body with {len(body.output)} outputs"
    return _outputs("body", body, len(node.output))


def _map(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    body = bodies["body"]
    if len(body.input) != len(node.input):
        return f"has {len(node.input)} inputs, and a body with {len(body.input)}"
    return _outputs("body", body, len(node.output))


def _outputs(name: str, body: onnx.GraphProto, wanted: int) -> str:
    if len(body.output) == wanted:
        return ""
    return f"has {wanted} outputs, and a body '{name}' with {len(body.output)}"


# Schemas do not describe the inputs and outputs of bodies.
_RULES = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _map}
