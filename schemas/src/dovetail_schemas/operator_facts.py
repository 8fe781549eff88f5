"""Backend-independent facts about operators: groups, kinds of values per port, and data flow between ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from dovetail.plugin import Source

from dovetail_schemas.errors import near_miss
from dovetail_schemas.operators import known_names
from dovetail_schemas.policy_file import split_operator
from dovetail_schemas.yaml_source import Entries, Scalar, load_tree

EdgeKind = Literal["data", "shape", "index", "state"]
_KEYS = ("groups", "kinds", "if-integer", "links")
_KINDS = ("shape", "index", "state")
_VALUES = ("data", "state")
_Ports = Mapping[tuple[str, str, str], EdgeKind]
_Links = Mapping[tuple[str, str, str], frozenset[str]]


@dataclass(frozen=True)
class OperatorFacts:
    """Facts about operators that hold on every backend.

    Attributes:
        groups: Operator names by group; with the domain for operators outside of ONNX, `acme::scale`.
    """

    groups: Mapping[str, frozenset[str]]
    _inputs: _Ports = field(repr=False)
    _outputs: _Ports = field(repr=False)
    _if_integer: frozenset[tuple[str, str, str]] = field(repr=False)
    _links: _Links = field(repr=False)

    def is_in(self, group: str, domain: str, op_type: str) -> bool:
        """Check whether an operator belongs to a group."""
        name = op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
        return name in self.groups.get(group, ())

    def joined(self, others: Sequence[OperatorFacts]) -> OperatorFacts:
        """Merge these facts with those of `others`, which describe other operators."""
        every = (self, *others)
        names = dict.fromkeys(name for one in every for name in one.groups)
        return OperatorFacts(
            {name: frozenset().union(*(one.groups.get(name, ()) for one in every)) for name in names},
            {port: kind for one in every for port, kind in one._inputs.items()},
            {port: kind for one in every for port, kind in one._outputs.items()},
            frozenset().union(*(one._if_integer for one in every)),
            {port: targets for one in every for port, targets in one._links.items()},
        )

    def input_kind(self, domain: str, op_type: str, port: str, *, integer: bool = True) -> EdgeKind:
        """Return the kind of value that flows into a port.

        Args:
            domain: The operator's domain.
            op_type: Its type.
            port: Name of the port.
            integer: Whether the value is an integer; some ports (of Range, for example) otherwise carry data.
        """
        return self._kind(self._inputs, (domain, op_type, port), integer)

    def output_kind(self, domain: str, op_type: str, port: str, *, integer: bool = True) -> EdgeKind:
        """Return the kind of value that flows out of a port; see `input_kind`."""
        return self._kind(self._outputs, (domain, op_type, port), integer)

    def carries(self, domain: str, op_type: str, source: str, target: str, *, integer: bool = True) -> bool:
        """Check whether the output `target` is computed from the numbers of the input `source`.

        Extents, indices, bounds and conditions only control a result. An operator without facts carries the numbers of
        every input to every output.

        Args:
            domain: The operator's domain.
            op_type: Its type.
            source: Name of the input port in the schema, also for variadic ports.
            target: Name of the output port there.
            integer: Whether the input value is an integer; see `input_kind`.
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
        SchemaError: A key, operator or port is unknown, a port has two kinds, or a link does not lead from an input to
            outputs.
    """
    return parse_operator_facts(load_tree(source).only("operator facts", _KEYS))


def parse_operator_facts(
    tree: Entries, domain: str = "", signatures: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None = None
) -> OperatorFacts:
    """Parse operator facts.

    Args:
        tree: The keys `groups`, `kinds`, `if-integer` and `links`.
        domain: The domain of operators named without one.
        signatures: Input and output names of the operators that facts may describe; by default, of all operators in
            onnx.

    Raises:
        SchemaError: See `load_operator_facts`.
    """
    return _Reader(domain, signatures).read(tree.only("facts", _KEYS))


class _Reader:
    """Parser of the facts about the operators of one domain, or about all operators in onnx."""

    def __init__(self, domain: str, signatures: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None):
        self._domain, self._signatures = domain, signatures

    def read(self, tree: Entries) -> OperatorFacts:
        inputs: dict[tuple[str, str, str], EdgeKind] = {}
        outputs: dict[tuple[str, str, str], EdgeKind] = {}
        for kind, table in _table(tree, "kinds").only("kinds", _KINDS):
            for key, ports in table.entries(kind.raw):
                operator, known_inputs, known_outputs = self._operator(key)
                words = ports.words(kind.raw)
                for port in words:
                    sides = [side for side, known in ((inputs, known_inputs), (outputs, known_outputs))
                             if known is None or port.raw in known]  # fmt: skip
                    if not sides:
                        allowed = (*(known_inputs or ()), *(known_outputs or ()))
                        raise port.error(f"{operator[1]} has no port '{port.raw}'{near_miss(port.raw, allowed)}")
                    for side in sides:
                        if side.setdefault((*operator, port.raw), cast(EdgeKind, kind.raw)) != kind.raw:
                            raise port.error(f"'{port.raw}' of {operator[1]} is given two kinds")
        return OperatorFacts(self._groups(tree), inputs, outputs, self._if_integer(tree), self._links(tree))

    def _operator(self, key: Scalar) -> tuple[tuple[str, str], Collection[str] | None, Collection[str] | None]:
        """Return domain and type of an operator, and its input and output names; None if any name is valid."""
        if self._signatures is None:
            domain, op_type = split_operator(key)
            names = known_names(domain, op_type)
            return (domain, op_type), names.inputs if names else None, names.outputs if names else None
        if key.raw not in self._signatures:
            raise key.error(f"the file has no operator '{key.raw}'{near_miss(key.raw, self._signatures)}")
        return (self._domain, key.raw), *self._signatures[key.raw]

    def _groups(self, tree: Entries) -> dict[str, frozenset[str]]:
        found = {}
        for name, members in _table(tree, "groups"):
            names = set()
            for word in members.words("groups"):
                (domain, op_type), *_ = self._operator(word)
                names.add(f"{domain}::{op_type}" if domain else op_type)
            found[name.raw] = frozenset(names)
        return found

    def _if_integer(self, tree: Entries) -> frozenset[tuple[str, str, str]]:
        found = set()
        for key, ports in _table(tree, "if-integer"):
            operator, known_inputs, known_outputs = self._operator(key)
            for word in ports.words("if-integer"):
                allowed = None if known_inputs is None else (*known_inputs, *(known_outputs or ()))
                if allowed is not None and word.raw not in allowed:
                    raise word.error(f"{operator[1]} has no port '{word.raw}'{near_miss(word.raw, allowed)}")
                found.add((*operator, word.raw))
        return frozenset(found)

    def _links(self, tree: Entries) -> dict[tuple[str, str, str], frozenset[str]]:
        found = {}
        for key, table in _table(tree, "links"):
            (domain, op_type), known_inputs, known_outputs = self._operator(key)
            for port, outputs in table.entries(f"links of {key.raw}"):
                words = outputs.words(port.raw, empty=True)
                known = [(port, known_inputs, "input"), *((word, known_outputs, "output") for word in words)]
                for word, allowed, side in known:
                    if allowed is not None and word.raw not in allowed:
                        raise word.error(f"{op_type} has no {side} '{word.raw}'{near_miss(word.raw, allowed)}")
                found[domain, op_type, port.raw] = frozenset(word.raw for word in words)
        return found


def _table(tree: Entries, key: str) -> Entries:
    node = tree.get(key)
    return node.entries(key) if node else Entries(tree.file, tree.line, ())
