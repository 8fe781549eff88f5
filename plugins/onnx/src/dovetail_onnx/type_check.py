"""Type checks: ports against the schemas of operators, bodies against their control-flow nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import is_onnx
from dovetail.planning import from_source

from dovetail_onnx.printer import type_text
from dovetail_onnx.signatures import Port, Signature, Signatures, input_name, output_name, signature

if TYPE_CHECKING:
    import onnx_ir as ir


class BodyFlow(NamedTuple):
    """A value that a control-flow operator passes into another one without changing its type.

    Attributes:
        what: Name of the pair in messages: `carried value`.
        one: A value of the node or of a body; None if it is omitted.
        other: The value that it becomes.
    """

    what: str
    one: ir.Value | None
    other: ir.Value | None


def body_flows(node: ir.Node) -> Iterable[BodyFlow]:
    """Return the pairs of `node`; an empty tuple if it is not control flow."""
    flows = _FLOWS.get(node.op_type)
    return flows(node) if flows is not None and is_onnx(node) else ()


def _if(node: ir.Node) -> Iterator[BodyFlow]:
    for branch in ("then_branch", "else_branch"):
        body = node.attributes[branch].as_graph()
        for inner, outer in zip(body.outputs, node.outputs, strict=False):
            yield BodyFlow(f"{branch} and output", inner, outer)


def _loop(node: ir.Node) -> Iterator[BodyFlow]:
    body = node.attributes["body"].as_graph()
    for index in range(len(node.inputs) - 2):
        yield BodyFlow("carried value", node.inputs[2 + index], body.inputs[2 + index])
        yield BodyFlow("carried value", body.inputs[2 + index], body.outputs[1 + index])
    for inner, outer in zip(body.outputs[1:], node.outputs, strict=False):
        yield BodyFlow("body and output", inner, outer)


def _scan(node: ir.Node) -> Iterator[BodyFlow]:
    body = node.attributes["body"].as_graph()
    lengths = len(node.inputs) - len(body.inputs)  # before opset 9, lengths of sequences come first
    for outer, inner in zip(node.inputs[max(lengths, 0) :], body.inputs, strict=False):
        yield BodyFlow("input and body", outer, inner)
    for inner, outer in zip(body.outputs, node.outputs, strict=False):
        yield BodyFlow("body and output", inner, outer)


_FLOWS = {"If": _if, "Loop": _loop, "Scan": _scan}


def type_problems(nodes: Iterable[ir.Node], opsets: Mapping[str, int]) -> list[str]:
    """Return the problems with numbers and types of the ports of `nodes`, one line each.

    A value without a type is compatible with everything.
    """
    problems: list[str] = []
    answers: dict[tuple, str | None] = {}
    signatures = Signatures(opsets)
    for node in nodes:
        op_type = node.op_type
        # Results are cached by operator, number and types of ports: large models repeat a few combinations.
        key = (
            op_type,
            node.domain,
            node.version,
            tuple([None if v is None else _key(v) for v in node.inputs]),
            tuple([_key(v) for v in node.outputs]),
        )
        if key not in answers:
            sig = signatures(node)
            answers[key] = None if sig is None else _arity_problem(node, sig) or _problem(node, sig)
        problem = answers[key]
        if problem is not None:
            problems.append(f"{op_type} '{node.name}'{from_source(node)}{problem}")
        if node.attributes.data and (flows := body_flows(node)):
            differences = filter(None, map(_difference, flows))
            problems.extend(f"{op_type} '{node.name}'{from_source(node)}: {text}" for text in differences)
    return problems


def _key(value: ir.Value):
    """Return a hashable key of the value's type: the element type for tensors."""
    kind = value.type
    return kind.dtype if kind is not None and kind.__class__.__name__ == "TensorType" else type_text(kind)


def _arity_problem(node: ir.Node, sig: Signature) -> str | None:
    if not sig.min_inputs <= len(node.inputs) <= sig.max_inputs:
        return f" has {len(node.inputs)} inputs; {sig.op_type} takes {sig.min_inputs} to {sig.max_inputs}"
    if not sig.min_outputs <= len(node.outputs) <= sig.max_outputs:
        return f" has {len(node.outputs)} outputs; {sig.op_type} gives {sig.min_outputs} to {sig.max_outputs}"
    return None


def _problem(node: ir.Node, sig: Signature) -> str | None:
    bound: dict[str, tuple[str, str]] = {}
    for name, value, port in _bindings(node, sig):
        text = type_text(value.type)
        if text is None or port is None:
            continue
        if text not in port.allowed:
            return f": '{name}' is {text}, which {sig.op_type}-{sig.version} does not take there"
        if port.variadic and not port.homogeneous:
            continue
        first, expected = bound.setdefault(port.parameter, (name, text))
        if text != expected:
            return f": '{name}' is {text} and '{first}' is {expected}; {sig.op_type} wants one type ({port.parameter})"
    return None


def node_problem(node: ir.Node, opsets: Mapping[str, int]) -> str | None:
    """Return the problem with the ports of one node, or None; operators without a schema have none."""
    sig = signature(node, opsets)
    problem = sig and (_arity_problem(node, sig) or _problem(node, sig))
    return f"{node.op_type} '{node.name}'{problem}" if problem else None


def _bindings(node: ir.Node, sig: Signature) -> Iterable[tuple[str, ir.Value, Port | None]]:
    for index, value in enumerate(node.inputs):
        if value is not None:
            yield input_name(index, sig), value, sig.input(index)
    for index, value in enumerate(node.outputs):
        if value.name:
            yield output_name(index, sig), value, sig.output(index)


def _difference(flow: BodyFlow) -> str:
    """Return how the types at both ends of a flow differ; empty if they do not."""
    what, one, other = flow
    if one is None or other is None:
        return ""
    a, b = type_text(one.type), type_text(other.type)
    # An optional may be passed as its element, so only tensor types are compared.
    if not (a and b and a.startswith("tensor") and b.startswith("tensor")) or a == b:
        return ""
    return f"{what}: '{one.name}' is {a} and '{other.name}' is {b}"
