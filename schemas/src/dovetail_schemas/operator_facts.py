"""Facts about operators that hold for every backend: groups, what flows on each port, and where its numbers go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dovetail.plugin import Source

from dovetail_schemas.errors import near_miss
from dovetail_schemas.operators import known_names
from dovetail_schemas.policy_file import parse_ports, split_operator
from dovetail_schemas.yaml_source import Entries, load_tree

__all__ = ["EdgeKind", "OperatorFacts", "load_operator_facts"]

EdgeKind = Literal["data", "shape", "index", "state"]
_KINDS = ("shape", "index", "state")
_VALUES = ("data", "state")
_Ports = Mapping[tuple[str, str, str], EdgeKind]
_Links = Mapping[tuple[str, str, str], frozenset[str]]


@dataclass(frozen=True)
class OperatorFacts:
    """What is true of operators on every backend.

    Attributes:
        groups: Names of operators, by group.
    """

    groups: Mapping[str, frozenset[str]]
    _inputs: _Ports = field(repr=False)
    _outputs: _Ports = field(repr=False)
    _if_integer: frozenset[tuple[str, str, str]] = field(repr=False)
    _links: _Links = field(repr=False)

    def input_kind(self, domain: str, op_type: str, port: str, *, integer: bool = True) -> EdgeKind:
        """What flows into a port.

        Args:
            domain: The operator's domain.
            op_type: Its type.
            port: Name of the port.
            integer: The value there is an integer; some ports (of Range, say) carry data when it is not.
        """
        return self._kind(self._inputs, (domain, op_type, port), integer)

    def output_kind(self, domain: str, op_type: str, port: str, *, integer: bool = True) -> EdgeKind:
        """What flows out of a port; see `input_kind`."""
        return self._kind(self._outputs, (domain, op_type, port), integer)

    def carries(self, domain: str, op_type: str, source: str, target: str, *, integer: bool = True) -> bool:
        """Whether the output `target` is computed from the numbers of the input `source`.

        Extents, indices, bounds and conditions only control a result; an operator that no file mentions carries the
        numbers of every input to every output.

        Args:
            domain: The operator's domain.
            op_type: Its type.
            source: Name of the input port in the schema, also for variadic ports.
            target: Name of the output port there.
            integer: The value at the input is an integer; see `input_kind`.
        """
        links = self._links.get(("" if domain == "ai.onnx" else domain, op_type, source))
        return (
            (links is None or target in links)
            and self.input_kind(domain, op_type, source, integer=integer) in _VALUES
            and self.output_kind(domain, op_type, target) in _VALUES
        )

    def _kind(self, ports: _Ports, key: tuple[str, str, str], integer: bool) -> EdgeKind:
        key = ("" if key[0] == "ai.onnx" else key[0], *key[1:])
        return "data" if not integer and key in self._if_integer else ports.get(key, "data")


def load_operator_facts(source: Source) -> OperatorFacts:
    """Load a file of operator facts (`ops/onnx.yaml`).

    Raises:
        SchemaError: An unknown key, operator or port, a port with two kinds, or a link that does not lead from an input
            to outputs.
    """
    tree = load_tree(source).only("operator facts", ("groups", "kinds", "if-integer", "links"))
    inputs: dict[tuple[str, str, str], EdgeKind] = {}
    outputs: dict[tuple[str, str, str], EdgeKind] = {}
    for kind, table in _table(tree, "kinds").only("kinds", _KINDS):
        for key, ports in table.entries(kind.raw):
            domain, op_type = split_operator(key)
            parse_ports((domain, op_type), ports.words(kind.raw))
            names = known_names(domain, op_type)
            for port in ports.words(kind.raw):
                entry = (domain, op_type, port.raw)
                sides = [side for side, known in ((inputs, names and names.inputs), (outputs, names and names.outputs))
                         if known is None or port.raw in known]  # fmt: skip
                for side in sides:
                    if side.setdefault(entry, kind.raw) != kind.raw:
                        raise port.error(f"'{port.raw}' of {op_type} is given two kinds")
    return OperatorFacts(_groups(tree), inputs, outputs, _if_integer(tree), _links(tree))


def _table(tree: Entries, key: str) -> Entries:
    node = tree.get(key)
    return node.entries(key) if node else Entries(tree.file, tree.line, ())


def _groups(tree: Entries) -> dict[str, frozenset[str]]:
    found = {}
    for name, members in _table(tree, "groups"):
        words = members.words("groups")
        for word in words:
            split_operator(word)
        found[name.raw] = frozenset(word.raw for word in words)
    return found


def _if_integer(tree: Entries) -> frozenset[tuple[str, str, str]]:
    found = set()
    for key, ports in _table(tree, "if-integer"):
        operator = split_operator(key)
        found |= {(*operator, port) for port in parse_ports(operator, ports.words("if-integer"))}
    return frozenset(found)


def _links(tree: Entries) -> dict[tuple[str, str, str], frozenset[str]]:
    found = {}
    for key, table in _table(tree, "links"):
        domain, op_type = split_operator(key)
        names = known_names(domain, op_type)
        for port, outputs in table.entries(f"links of {key.raw}"):
            words = outputs.words(port.raw, empty=True)
            known = [
                (port, names and names.inputs, "input"),
                *((word, names and names.outputs, "output") for word in words),
            ]
            for word, allowed, side in known:
                if allowed is not None and word.raw not in allowed:
                    raise word.error(f"{op_type} has no {side} '{word.raw}'{near_miss(word.raw, allowed)}")
            found[domain, op_type, port.raw] = frozenset(word.raw for word in words)
    return found
