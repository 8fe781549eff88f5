"""Raising of models to a newer opset of the default ONNX domain, one operator version at a time.

onnx has a converter for that. It changes the meaning of nodes silently (a Resize of opset 10, a GroupNormalization of
opset 18), so the steps are in our own table, which a sweep over all versions of all operators executes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames
from dovetail_onnx.signatures import find_signature
from dovetail_onnx.topological_order import bodies_of

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.lowering.schemas import is_default, rows_by_version, version_of
from dovetail_transforms.raising.rules.all_rules import RULES
from dovetail_transforms.raising.writer import NodeNotRaised, Values, Writer

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class RaisingRow:
    """How a node of the version before is written in one version of its operator; `table.yaml` explains the keys."""

    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    write: Mapping[str, Any] = field(default_factory=dict)
    becomes: str = ""
    inputs: Sequence[str] = ()
    rewrite: str = ""
    types: bool = False


class NotRaised(DovetailError):
    """A node has no form in the newer opset.

    Attributes:
        node: Its name.
    """

    def __init__(self, node: str, why: str):
        super().__init__(why, "export the model again with a newer opset")
        self.node = node


def _not_raised(node: onnx.NodeProto, present: int, wanted: int, why: str) -> NotRaised:
    name = node.name or (node.output[0] if node.output else node.op_type)
    return NotRaised(name, f"'{name}' ({node.op_type} of opset {present}) has no form in opset {wanted}: {why}")


@cache
def load_table() -> Mapping[tuple[str, int], RaisingRow]:
    """Return the rows by operator and version."""
    return rows_by_version(__package__, RaisingRow)


def raise_opset(proto: onnx.ModelProto, present: int, wanted: int) -> None:
    """Write all nodes of the main graph and its bodies for opset `wanted` of the default domain, in place.

    The imported version and the local functions stay as they are. Nodes that no schema describes stay.

    Raises:
        NotRaised: A node has no form in `wanted`; the model is then partly raised.
    """
    nodes = list(all_nodes(proto.graph))
    concerned = _concerned(nodes, present, wanted)
    if not concerned:
        return
    values = Values.of_model(proto, with_types=any(concerned.values()))
    taken = {name for node in nodes for name in (node.name, *node.input, *node.output)}
    taken |= {value.name for value in (*proto.graph.input, *proto.graph.initializer)}
    taken |= {value.name for node in nodes for body in bodies_of(node) for value in (*body.input, *body.initializer)}
    graphs = [proto.graph]
    for graph in graphs:  # grows: outer graphs stand before their bodies
        graphs.extend(body for node in graph.node for body in bodies_of(node))
    raising = _Raising(present, wanted, concerned, values, FreshNames(taken))
    for graph in reversed(graphs):
        raising.apply(graph.node)


def raise_function(function: onnx.FunctionProto, present: int, wanted: int) -> None:
    """Write all nodes of a function for opset `wanted`, in place; see `raise_opset`.

    The types in a function are unknown, so nodes that need them are refused.

    Raises:
        NotRaised: A node has no form in `wanted`.
    """
    graphs = [body for node in function.node for body in bodies_of(node)]
    for graph in graphs:
        graphs.extend(body for node in graph.node for body in bodies_of(node))
    nodes = [*function.node, *(node for graph in graphs for node in graph.node)]
    concerned = _concerned(nodes, present, wanted)
    if not concerned:
        return
    taken = {name for node in nodes for name in (node.name, *node.input, *node.output)} | set(function.input)
    taken |= {value.name for graph in graphs for value in (*graph.input, *graph.initializer)}
    raising = _Raising(present, wanted, concerned, Values.of_function(function), FreshNames(taken))
    for graph in reversed(graphs):
        raising.apply(graph.node)
    raising.apply(function.node)


def next_version(op_type: str, version: int, wanted: int) -> int | None:
    """Return the next opset after `version`, up to `wanted`, that changed an operator; None if none did."""
    return _changes(op_type, wanted).get(version) if version < wanted else None


@cache
def _changes(op_type: str, wanted: int) -> Mapping[int, int]:
    """Return, for each opset before `wanted`, the next one in which an operator changed, where there is one."""
    found, following = {}, None
    newer = version_of(op_type, wanted)
    for opset in range(wanted - 1, 0, -1):
        older = version_of(op_type, opset)
        if older is None:
            break
        if newer is not None and older != newer:
            following = newer
        newer = older
        if following is not None:
            found[opset] = following
    return found


def _concerned(nodes: Sequence[onnx.NodeProto], present: int, wanted: int) -> dict[str, bool]:
    """Return the operators that change between two opsets, and whether the steps need types.

    Raises:
        NotRaised: ONNX Runtime defines an operator for older opsets only.
    """
    found = {}
    for node in nodes:
        if is_default(node.domain) and _ends(node.op_type, present, wanted):
            raise _not_raised(node, present, wanted, "ONNX Runtime drops it")
    for op_type in {node.op_type for node in nodes if is_default(node.domain)}:
        if next_version(op_type, present, wanted) is not None:
            found[op_type] = _needs_types(op_type, present, wanted)
    return found


@cache
def _ends(op_type: str, present: int, wanted: int) -> bool:
    """Check whether an operator that ONNX Runtime alone defines (Crop) has another, empty version in `wanted`."""
    if version_of(op_type, present) is not None:
        return False
    older, newer = find_signature("", op_type, present), find_signature("", op_type, wanted)
    return older is not None and (newer is None or newer.version != older.version)


def _needs_types(op_type: str, present: int, wanted: int) -> bool:
    following = next_version(op_type, present, wanted)
    while following is not None:
        row = load_table().get((op_type, following), RaisingRow())
        if row.types or row.becomes and _needs_types(row.becomes, following, wanted):
            return True
        following = next_version(op_type, following, wanted)
    return False


class _Raising:
    def __init__(self, present: int, wanted: int, concerned: Mapping[str, bool], values: Values, names: FreshNames):
        self._present, self._wanted, self._concerned = present, wanted, concerned
        self._values, self._names = values, names

    def apply(self, nodes: Any) -> None:
        """Raise a list of nodes (a repeated field) in place."""
        raised: list[onnx.NodeProto] = []
        changed = False
        for node in nodes:
            if node.op_type not in self._concerned or not is_default(node.domain):
                raised.append(node)
                continue
            made = self._raised(node)
            changed |= len(made) != 1 or made[0] is not node
            raised.extend(made)
        if changed:
            copies = [type(node).FromString(node.SerializeToString()) for node in raised]
            del nodes[:]
            nodes.extend(copies)

    def _raised(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return what replaces a node; often the node itself, with other attributes."""
        done = []
        waiting = [(node, self._present)]
        try:
            while waiting:
                current, version = waiting.pop()
                following = next_version(current.op_type, version, self._wanted)
                if following is None:
                    done.append(current)
                    continue
                waiting.extend(reversed(self._one_step(current, version, following)))
        except NodeNotRaised as why:
            assert following is not None
            raise _not_raised(node, self._present, following, str(why)) from None
        return done

    def _one_step(self, node: onnx.NodeProto, version: int, following: int) -> list[tuple[onnx.NodeProto, int]]:
        row = load_table().get((node.op_type, following), RaisingRow())
        writer = Writer(node, following, self._wanted, self._values, self._names)
        writer.drop(_HINT)
        for name, value in (_changed_defaults(node.op_type, version, following) | dict(row.write)).items():
            if writer.attribute(name) is None:
                writer.write(**{name: value})
        for name, others in row.values.items():
            if (value := writer.attribute(name)) in others:
                writer.write(**{name: others[value]})
        for attribute in node.attribute:
            attribute.name = row.rename.get(attribute.name, attribute.name)
        if row.inputs:
            _attributes_to_inputs(writer, row.inputs)
        if row.rewrite:
            RULES[row.rewrite](writer)
        writer.drop(*row.drop)
        node.op_type = row.becomes or node.op_type
        if not row.rewrite:
            writer.keep()
        return writer.made


_HINT = "consumed_inputs"
"""An attribute of the first opset: inputs whose memory may be overwritten."""


@cache
def _changed_defaults(op_type: str, version: int, following: int) -> dict[str, object]:
    """Return the attributes whose default is another one in `following`, with the former default."""
    older, newer = find_signature("", op_type, version), find_signature("", op_type, following)
    assert older is not None and newer is not None
    kept = {name for name in older.defaults if older.attribute_types[name] == newer.attribute_types.get(name)}
    return {name: older.defaults[name] for name in kept if older.defaults[name] != newer.defaults.get(name)}


def _attributes_to_inputs(writer: Writer, names: Sequence[str]) -> None:
    """Make inputs of attributes: a list of int64, at the end of the inputs. Absent attributes leave no trace."""
    while len(names) and writer.attribute(names[-1]) is None:
        names = names[:-1]
    for name in names:
        value = writer.take(name)
        numbers = [value] if isinstance(value, int) else value
        writer.node.input.append("" if value is None else writer.integers(numbers, name))
