"""Rules: the compiled settings of a backend for one operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dovetail_schemas.entries import ONE_KEY, RuleEntry
from dovetail_schemas.errors import near_miss
from dovetail_schemas.limits import Block, CheckNames, Guard, Limit, parse_blocks, parse_fused, parse_guards
from dovetail_schemas.operators import Names, is_position, known_names
from dovetail_schemas.policy_file import POLICIES, parse_ports
from dovetail_schemas.terms import ShapePattern, parse_pattern
from dovetail_schemas.type_specs import INPUTS_OF_PRODUCTS, PortTypes, TypeSpec, parse_port_types
from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar


class Sharing(NamedTuple):
    """A rule's settings on the parameters of quantized ports.

    Attributes:
        same_scale: Source of the parameters that ports share: `all`, `input`, `output`, `consumer`, `free`; empty if
            they share none.
        ports: The ports that share them; empty for all.
        fuses: Operators fused with the node if they are the only user of its first output.
    """

    same_scale: str = ""
    ports: frozenset[str] = frozenset()
    fuses: tuple[str, ...] = ()


ROLES = ("active", "passive", "manual")
UNLISTED = ("", "")
"""The entry for all operators that a file does not list."""

ROW_KEYS = ("when", "shape", "limits", "types", "policy", "role", "set", "keep", "note")
_SCALES_FROM = ("input", "output", "consumer", "free")
_PORT_FACTS = ("rank", "constant", "is_output", "consumers")
_NODE_FACTS = ("version", "constants", "outputs")


@dataclass(frozen=True, slots=True)
class Row:
    """One of several ways to support an operator.

    Attributes:
        when: The condition under which the row applies.
        patterns: Its shape patterns.
        blocks: Its limits.
        types: Its types, or None.
        role: Its role; empty for that of the rule.
        policy: Its policy; empty for that of the rule.
        set: Attributes to set in addition to the rule's.
        keep: Ports to keep in the high precision in addition to the rule's.
        source: File and line.
    """

    when: Guard = field(default_factory=Guard)
    patterns: tuple[ShapePattern, ...] = ()
    blocks: tuple[Block, ...] = ()
    types: PortTypes | None = None
    role: str = ""
    policy: str = ""
    set: Mapping[str, object] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    source: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The names that it uses."""
        guards = (self.when, *(block.when for block in self.blocks))
        parts: list[Guard | Limit] = [*guards, *(limit for block in self.blocks for limit in block.limits)]
        return frozenset(name for part in parts for name in part.names)

    def __str__(self) -> str:
        parts = [", ".join(map(str, self.patterns)), f"when {self.when}" if self.when.limits else ""]
        return " ".join(filter(None, parts)) or "any"


@dataclass(frozen=True, slots=True)
class Rule:
    """A backend's rule for one operator.

    Attributes:
        domain: Its domain.
        op_type: Its type.
        status: `ok`, `refuse` (left to other backends), `forbid` (the backend's tools reject the whole model).
        listed: Whether the file names it, directly or in a group.
        role: `active`, `passive`, `manual` or empty.
        policy: Its autocast policy, or empty.
        keep: Ports that stay in the high precision even if the operator is typed low.
        set: Attributes to rewrite if it is typed low.
        sharing: The settings on the parameters of its quantized ports.
        note: A remark of the file's author.
        types: Its types, or None.
        rows: The ways to support it; exactly one if the file has no `rows:`.
        source: File and line of the most specific place.
    """

    domain: str
    op_type: str
    status: Literal["ok", "refuse", "forbid"] = "refuse"
    listed: bool = False
    role: str = ""
    policy: str = ""
    keep: frozenset[str] = frozenset()
    set: Mapping[str, object] = field(default_factory=dict)
    sharing: Sharing = Sharing()
    note: str = ""
    types: PortTypes | None = None
    rows: tuple[Row, ...] = ()
    source: str = ""


class RuleContext(NamedTuple):
    """The names that a rule may refer to.

    Attributes:
        types: The file's named types.
        facts: Names of the facts that plugins registered.
    """

    types: Mapping[str, TypeSpec]
    facts: frozenset[str]


def compile_rule(operator: tuple[str, str], entry: RuleEntry, context: RuleContext) -> Rule:
    """Compile an entry to a rule.

    Raises:
        SchemaError: A word, name, port, term, range or shape is invalid.
    """
    domain, op_type = operator
    source = entry.place.where
    assert entry.status != "drop", "dropped rules are not compiled"
    if entry.status != "ok":
        return Rule(domain, op_type, entry.status, entry.listed, source=source)
    keys = entry.keys
    reader = _Reader(operator, context)
    whole = Entries(entry.place.file, entry.place.line, tuple((Scalar("", 0, key), keys[key]) for key in keys))
    rows = keys.get("rows")
    if rows is None:
        body = {key: value for key, value in keys.items() if key in ONE_KEY}
        compiled: tuple[Row, ...] = (reader.row(body, source),)
    elif isinstance(rows, Items) and rows.items:
        parts = [row.entries("rows").only(f"rows of {op_type}", ROW_KEYS) for row in rows.items]
        compiled = tuple(reader.row({key.raw: value for key, value in part}, part.where) for part in parts)
    else:
        raise rows.error(f"rows of {op_type}: a list of rows is expected")
    return Rule(
        domain,
        op_type,
        "ok",
        entry.listed,
        role=whole.choice("role", ROLES),
        policy=whole.choice("policy", POLICIES),
        keep=reader.keep(keys.get("keep")),
        set=reader.set(keys.get("set")),
        sharing=reader.sharing(keys),
        note=keys["note"].text("note") if "note" in keys else "",
        types=reader.types(keys["types"]) if "types" in keys else None,
        rows=compiled,
        source=source,
    )


class _Reader:
    """Parser of the parts of a rule for a given operator."""

    def __init__(self, operator: tuple[str, str], context: RuleContext):
        self.operator = operator
        self.label = "unlisted operators" if operator == UNLISTED else operator[1]
        self.context = context
        self.named: Names | None = known_names(*operator)
        if operator == UNLISTED:
            self.named = Names(frozenset(), frozenset(), frozenset())

    def row(self, keys: Mapping[str, Node], source: str) -> Row:
        shape, limits, types = keys.get("shape"), keys.get("limits"), keys.get("types")
        patterns = self.patterns(shape) if shape else ()
        if note := keys.get("note"):
            note.text("note")
        check = self.name_checker({name for pattern in patterns for name in pattern.names})
        body = Entries("", 0, tuple((Scalar("", 0, key), value) for key, value in keys.items()))
        return Row(
            parse_guards(keys.get("when"), check),
            patterns,
            parse_blocks(limits, check, self.types) if limits else (),
            self.types(types) if types else None,
            body.choice("role", ROLES),
            body.choice("policy", POLICIES),
            self.set(keys.get("set")),
            self.keep(keys.get("keep")),
            source,
        )

    def patterns(self, node: Node) -> tuple[ShapePattern, ...]:
        found = []
        for key, value in node.entries("shape"):
            known = {*self.named.ports, *self.named.attributes} if self.named else {key.raw}
            if key.raw not in known and not is_position(key.raw):
                raise key.error(f"{self.label} has no port '{key.raw}'{near_miss(key.raw, known)}")
            found.append(parse_pattern(key.raw, value))
        return tuple(found)

    def types(self, node: Node) -> PortTypes:
        if isinstance(node, Entries):
            for port, _ in node:
                self.check_port(port, port.raw)
        types = parse_port_types(node, self.context.types)
        for spec in (spec for specs in (types.common or (), *types.ports.values()) for spec in specs):
            for factor in spec.parameters.factors:
                known = factor in INPUTS_OF_PRODUCTS or is_position(factor)
                if self.named and factor not in self.named.ports and not known:
                    miss = near_miss(factor, self.named.ports)
                    raise node.error(f"{self.label} has no port '{factor}' for the scale of type '{spec.name}'{miss}")
        return types

    def sharing(self, keys: Mapping[str, Node]) -> Sharing:
        mode, ports = self._same_scale(keys["same_scale"]) if "same_scale" in keys else ("", frozenset())
        return Sharing(mode, ports, parse_fused(keys.get("fuses")))

    def _same_scale(self, node: Node) -> tuple[str, frozenset[str]]:
        """Parse the source of shared parameters, and the ports that share them; empty for all."""
        if isinstance(node, Items):
            ports = parse_ports(self.operator, node.words("same_scale"))
            if len(ports) < 2:
                raise node.error("same_scale: two ports at least are expected, or true for all of them")
            return "all", ports
        value = node.plain()
        if isinstance(value, bool):
            return "all" if value else "", frozenset()
        if value not in _SCALES_FROM:
            raise node.error(f"same_scale: true, false, {', '.join(_SCALES_FROM)} or a list of ports is expected")
        return value, frozenset()

    def keep(self, node: Node | None) -> frozenset[str]:
        return parse_ports(self.operator, node.words("keep")) if node else frozenset()

    def set(self, node: Node | None) -> dict[str, object]:
        if node is None:
            return {}
        entries = node.entries("set")
        for key, _ in entries:
            if self.named and key.raw not in self.named.attributes:
                miss = near_miss(key.raw, self.named.attributes)
                raise key.error(f"{self.label} has no attribute '{key.raw}'{miss}")
        return entries.plain()

    def check_port(self, place: Node, port: str) -> None:
        if self.named and port not in self.named.ports and not is_position(port):
            raise place.error(f"{self.label} has no port '{port}'{near_miss(port, self.named.ports)}")

    def name_checker(self, extents: Iterable[str]) -> CheckNames:
        bare = {*extents, *_NODE_FACTS, *self.context.facts}
        if self.named:
            bare |= self.named.ports | self.named.attributes

        def check(place: Node, names: Iterable[str]) -> None:
            for name in names:
                port, dot, fact = name.partition(".")
                if name == "region.last" or (not dot and (name in bare or is_position(name))):
                    continue
                if dot and port != "region":
                    self.check_port(place, port)
                    if fact in _PORT_FACTS:
                        continue
                    candidates = [f"{port}.{known}" for known in _PORT_FACTS]
                else:
                    candidates = ["region.last"] if dot else sorted(bare)
                    if self.named is None and not dot:
                        continue  # nothing is known about this operator's attributes
                raise place.error(f"unknown name '{name}' in limits of {self.label}{near_miss(name, candidates)}")

        return check
