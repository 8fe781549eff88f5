"""Lowering of single nodes, one operator version at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import body_nodes

from dovetail_transforms.lowering.node_facts import CONDITIONS, UNRELATED, attribute
from dovetail_transforms.lowering.rules.all_rules import RULES
from dovetail_transforms.lowering.schemas import (
    function_body,
    is_default,
    rows_by_version,
    version_of,
    why_not_as_written,
    write_changed_defaults,
)
from dovetail_transforms.rewriting import rewrite_node

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FreshNames


ANY = "any"  # an attribute that may be dropped regardless of its value


@dataclass(frozen=True, slots=True)
class LoweringRow:
    """The lowering of a node from one operator version to the version before.

    Attributes:
        drop: Values at which attributes may be dropped, by name; `any` for all values. For a list of numbers, the value
            must be that of every element.
        values: Equivalent older values of attributes, by attribute and value.
        only: The values valid in the version before, by attribute.
        changed: The difference in semantics; empty if there is none.
        unless: The condition under which a node is not affected by this difference.
        rewrite: Name of the rule for nodes that the version before does not accept as written.
        function: Whether the node is replaced by the function body that ONNX defines.
        refuse: Why no node can be lowered; empty if some can.
        hint: What the user can do about a node that cannot be lowered.
    """

    drop: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    changed: str = ""
    unless: str = ""
    rewrite: str = ""
    function: bool = False
    refuse: str = ""
    hint: str = ""

    @property
    def concerns_nodes_as_written(self) -> bool:
        """Whether the row also affects nodes that the version before accepts as written."""
        return bool(self.drop or self.values or self.only or self.changed or self.refuse)


@cache
def load_table() -> Mapping[tuple[str, int], LoweringRow]:
    """Return the rows by operator and version."""
    return rows_by_version(__package__, LoweringRow)


_HINT = "use operators of the older opset in the model, or leave this node to a backend that reads its opset"


class NodeNotLowered(Exception):
    """A node cannot be lowered.

    Attributes:
        node: Its name.
        why: One sentence that names the operator, both opsets and the reason.
        hint: What the user can do.
    """

    def __init__(self, node: str, why: str, hint: str):
        super().__init__(why)
        self.node, self.why, self.hint = node, why, hint


class LoweringStep(NamedTuple):
    """One change of a node during lowering.

    Attributes:
        node: The name of the node.
        rule: The name of the rule.
        text: A description of the change.
    """

    node: str
    rule: str
    text: str


def lower_node(node: ir.Node, opset: int, target: int, names: FreshNames) -> Iterator[LoweringStep]:
    """Lower one node, without the nodes in its bodies, to `target`; its replacements are lowered in turn.

    Args:
        node: A node of a graph. It may be replaced.
        opset: The opset that it is written in, unless the node specifies one.
        target: The opset to lower it to.
        names: Names for new nodes and values.

    Yields:
        Each change; none for a node that `target` accepts as written.

    Raises:
        NodeNotLowered: The node cannot be lowered to `target`.
    """
    name = node.name or node.op_type
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if not is_default(current.domain):
            continue
        current.version = current.version or opset
        while True:
            version = version_of(current.op_type, current.version)
            if version is None:
                raise _refused(
                    name, current, opset, target, f"opset {current.version} has no such operator", LoweringRow()
                )
            if version <= target:
                current.version = target
                break
            step, made = _one_version(name, current, version, opset, target, names)
            if step is not None:
                yield step
            for new in reversed(made):
                inside = list(body_nodes(new))
                for inner in inside:
                    inner.version = new.version
                waiting.extend(reversed(inside))
                waiting.append(new)
            if made or current.graph is None:
                break


def _one_version(
    name: str, node: ir.Node, version: int, opset: int, target: int, names: FreshNames
) -> tuple[LoweringStep | None, Sequence[ir.Node]]:
    """Lower `node` to the version before `version`; return the change, and the replacement nodes, if any."""
    row = load_table().get((node.op_type, version), LoweringRow())
    if row.refuse:
        raise _refused(name, node, opset, target, row.refuse, row)
    before = version_of(node.op_type, version - 1)
    affected = row.changed and not (row.unless and CONDITIONS[row.unless](node))
    why, dropped = _written_for_older(node, row) if before is not None else ("", [])
    if before is None:
        why = f"it came with opset {version}"
    elif affected:
        why = why or row.changed
    else:
        write_changed_defaults(node, version, before)
        while node.inputs and node.inputs[-1] is None:
            node.resize_inputs(len(node.inputs) - 1)
        why = why or why_not_as_written(node, before)
    if not why:
        node.version = before
        text = f"{node.op_type} of opset {version} is written for opset {before}: {', '.join(dropped)}"
        return (LoweringStep(name, "attributes", text) if dropped else None), []
    rule = RULES[row.rewrite] if row.rewrite else function_body(node.op_type, version) if row.function else None
    if rule is None:
        raise _refused(name, node, opset, target, why, row)
    op_type = node.op_type
    outcome = rewrite_node(rule, node, names, version - 1)
    if outcome.why:
        raise _refused(name, node, opset, target, why if outcome.why == UNRELATED else outcome.why, row)
    made = ", ".join(dict.fromkeys(new.op_type for new in outcome.nodes))
    return LoweringStep(name, rule.name, f"{op_type} of opset {version} becomes {made}"), outcome.nodes


def _written_for_older(node: ir.Node, row: LoweringRow) -> tuple[str, list[str]]:
    """Drop or rename attributes that the older version expresses differently.

    Returns:
        Why a value cannot be expressed, or an empty text; and a list of the changes.
    """
    import onnx_ir as ir

    why, changed = "", []
    for name, neutral in row.drop.items():
        if name not in node.attributes:
            continue
        value = attribute(node, name)
        if neutral == ANY or (all(one == neutral for one in value) if isinstance(value, list) else value == neutral):
            node.attributes.pop(name)
            changed.append(f"without {name}")
        else:
            why = why or f"{name} is {value}"
    for name, others in row.values.items():
        value = attribute(node, name)
        if value in others:
            node.attributes[name] = ir.convenience.convert_attribute(name, others[value])
            changed.append(f"{name} is {others[value]}")
    for name, known in row.only.items():
        if name in node.attributes and attribute(node, name) not in known:
            why = why or f"{name} is {attribute(node, name)}"
    return why, changed


def _refused(name: str, node: ir.Node, opset: int, target: int, why: str, row: LoweringRow) -> NodeNotLowered:
    inside = "" if name in (node.name, node.op_type) else f" (in what replaces '{name}')"
    text = f"{node.op_type} of opset {opset}{inside} has no form in opset {target}: {why}"
    return NodeNotLowered(name, text, row.hint or _HINT)
