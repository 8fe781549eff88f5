"""Rules: what a backend says about one operator, merged from all the places that may say something.

    unlisted < group < named operator < variant < the file that extends

Keys merge one by one; `shape`, `limits` and `rows` count as one key, because a limit means nothing without the shape
that names its extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dovetail.schema.errors import near_miss, one_of
from dovetail.schema.limits import Block, CheckNames, Guard, parse_blocks, parse_guards
from dovetail.schema.operators import Names, is_position, known_names
from dovetail.schema.policies import POLICIES, parse_ports, split_operator
from dovetail.schema.shapes import Pattern, parse_pattern
from dovetail.schema.type_specs import PortTypes, TypeSpec, parse_port_types
from dovetail.schema.yaml_source import Entries, Items, Node, Scalar

__all__ = ["Context", "Entry", "Row", "Rule", "UNLISTED", "collect_entries", "compile_rule", "parse_unlisted"]

ROLES = ("active", "passive", "manual")
UNLISTED = ("", "")
"""Stands for every operator that a file does not list."""

_ROW_KEYS = ("when", "shape", "limits", "types", "policy", "role", "set", "keep", "note")
_RULE_KEYS = ("role", "policy", "types", "shape", "limits", "rows", "set", "keep", "same_scale", "note")
_ONE_KEY = frozenset({"shape", "limits", "rows"})
_STATUS = ("refuse", "forbid")
_PORT_FACTS = ("rank", "constant", "is_output", "consumers")
_NODE_FACTS = ("version", "constants", "outputs")


@dataclass(frozen=True, slots=True)
class Row:
    """One of several ways to support an operator.

    Attributes:
        when: What must hold for the row to be asked.
        patterns: Its shapes.
        blocks: Its limits.
        types: What it says about types, or None.
        role: Its role, or empty for the rule's.
        policy: Its policy, or empty for the rule's.
        set: Attributes it sets besides the rule's.
        keep: Ports it keeps in the high precision besides the rule's.
        source: File and line.
    """

    when: Guard = field(default_factory=Guard)
    patterns: tuple[Pattern, ...] = ()
    blocks: tuple[Block, ...] = ()
    types: PortTypes | None = None
    role: str = ""
    policy: str = ""
    set: Mapping[str, object] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    source: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Every name that it asks of a node."""
        guards = (self.when, *(block.when for block in self.blocks))
        limits = (limit for block in self.blocks for limit in block.limits)
        return frozenset(name for part in (*guards, *limits) for name in part.names)

    def __str__(self) -> str:
        parts = [", ".join(map(str, self.patterns)), f"when {self.when}" if self.when.limits else ""]
        return " ".join(filter(None, parts)) or "any"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a backend says about one operator.

    Attributes:
        domain: Its domain.
        op_type: Its type.
        status: `ok`, `refuse` (someone else takes it), `forbid` (the backend's tools reject the whole model).
        listed: The file names it, itself or in a group.
        role: `active`, `passive`, `manual` or empty.
        policy: How autocast treats it, or empty.
        keep: Ports that stay in the high precision even where it goes low.
        set: Attributes to rewrite when it goes low.
        same_scale: Its data ports share one quantiser.
        note: A remark of the file's author.
        types: What is said about types, or None.
        rows: The ways to support it; exactly one when the file has no `rows:`.
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
    same_scale: bool = False
    note: str = ""
    types: PortTypes | None = None
    rows: tuple[Row, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What several places of several files say about one operator, not yet read closely.

    Attributes:
        status: `ok`, `refuse` or `forbid`.
        keys: The merged keys.
        place: The most specific place.
        listed: A file names the operator.
    """

    status: str
    keys: Mapping[str, Node]
    place: Node
    listed: bool = True

    def under(self, other: Entry) -> Entry:
        """With `other`, which is more specific, laid over."""
        if other.status != "ok":
            return other
        dropped = _ONE_KEY if _ONE_KEY & other.keys.keys() else frozenset()
        kept = {key: value for key, value in self.keys.items() if key not in dropped}
        return replace(other, keys={**kept, **other.keys})


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may refer to.

    Attributes:
        types: The file's named types.
        facts: Names of the facts that plugins registered.
    """

    types: Mapping[str, TypeSpec]
    facts: frozenset[str]


def parse_unlisted(node: Node) -> Entry:
    """What stands under `unlisted:`.

    Raises:
        SchemaError: It is neither `refuse`, `forbid` nor a mapping of a rule's keys.
    """
    return replace(_entry(node, "unlisted", node), listed=False)


def collect_entries(ops: Entries, groups: Mapping[str, list[Scalar]]) -> dict[tuple[str, str], Entry]:
    """What one `ops:` table says about every operator it lists.

    Raises:
        SchemaError: An unknown operator, group or key, or an operator given twice on one level.
    """
    levels: tuple[dict[tuple[str, str], Entry], ...] = ({}, {})
    lines: tuple[dict[tuple[str, str], int], ...] = ({}, {})
    for key, value in ops:
        for name in (part.strip() for part in key.raw.split(",")):
            grouped = name.startswith("$")
            if grouped and name[1:] not in groups:
                raise key.error(f"unknown group '{name[1:]}'{near_miss(name[1:], groups)}")
            words = groups[name[1:]] if grouped else [Scalar(key.file, key.line, name)]
            level, seen = levels[not grouped], lines[not grouped]
            for word in words:
                operator = split_operator(word)
                if operator in level:
                    raise key.error(f"'{word.raw}' is given twice (first on line {seen[operator]})")
                seen[operator] = key.line
                level[operator] = _entry(value, word.raw, key)
    by_group, by_name = levels
    return {
        operator: by_group[operator].under(by_name[operator])
        if operator in by_group and operator in by_name
        else by_name.get(operator) or by_group[operator]
        for operator in {**by_group, **by_name}
    }


def _entry(node: Node, what: str, place: Node) -> Entry:
    if isinstance(node, Entries):
        node.only(what, _RULE_KEYS)
        keys = {key.raw: value for key, value in node}
        if "rows" in keys and len(_ONE_KEY & keys.keys()) > 1:
            raise node.error(f"{what}: rows hold their own shape and limits; write these inside the rows")
        return Entry("ok", keys, place)
    status = node.text(what)
    if status not in _STATUS:
        raise node.error(f'{what}: "{status}" is not one of {one_of(_STATUS)}, nor a mapping')
    return Entry(status, {}, place)


def compile_rule(operator: tuple[str, str], entry: Entry, context: Context) -> Rule:
    """Read an entry closely.

    Raises:
        SchemaError: A bad word, name, port, term, range or shape.
    """
    domain, op_type = operator
    source = entry.place.where
    if entry.status != "ok":
        return Rule(domain, op_type, entry.status, entry.listed, source=source)
    keys = entry.keys
    reader = _Reader(operator, context)
    whole = Entries(entry.place.file, entry.place.line, tuple((Scalar("", 0, key), keys[key]) for key in keys))
    rows = keys.get("rows")
    if rows is None:
        body = {key: value for key, value in keys.items() if key in _ONE_KEY}
        compiled = (reader.row(body, source),)
    elif isinstance(rows, Items) and rows.items:
        parts = [row.entries("rows").only(f"rows of {op_type}", _ROW_KEYS) for row in rows.items]
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
        same_scale=_flag(keys.get("same_scale"), "same_scale"),
        note=keys["note"].text("note") if "note" in keys else "",
        types=reader.types(keys["types"]) if "types" in keys else None,
        rows=compiled,
        source=source,
    )


def _flag(node: Node | None, what: str) -> bool:
    if node is None:
        return False
    value = node.plain()
    if not isinstance(value, bool):
        raise node.error(f"{what}: true or false is expected")
    return value


class _Reader:
    """Reads the parts of a rule, knowing its operator."""

    def __init__(self, operator: tuple[str, str], context: Context):
        self.operator = operator
        self.label = "unlisted operators" if operator == UNLISTED else operator[1]
        self.context = context
        self.named: Names | None = known_names(*operator)
        if operator == UNLISTED:
            self.named = Names(frozenset(), frozenset(), frozenset())

    def row(self, keys: Mapping[str, Node], source: str) -> Row:
        shape, limits, types = keys.get("shape"), keys.get("limits"), keys.get("types")
        patterns = self.patterns(shape) if shape else ()
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

    def patterns(self, node: Node) -> tuple[Pattern, ...]:
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
        return parse_port_types(node, self.context.types)

    def keep(self, node: Node | None) -> frozenset[str]:
        return parse_ports(self.operator, node.words("keep")) if node else frozenset()

    def set(self, node: Node | None) -> dict[str, object]:
        if node is None:
            return {}
        for key, _ in node.entries("set"):
            if self.named and key.raw not in self.named.attributes:
                miss = near_miss(key.raw, self.named.attributes)
                raise key.error(f"{self.label} has no attribute '{key.raw}'{miss}")
        return node.plain()

    def check_port(self, place: Scalar, port: str) -> None:
        if self.named and port not in self.named.ports and not is_position(port):
            raise place.error(f"{self.label} has no port '{port}'{near_miss(port, self.named.ports)}")

    def name_checker(self, extents: Iterable[str]) -> CheckNames:
        bare = {*extents, *_NODE_FACTS, *self.context.facts}
        if self.named:
            bare |= self.named.ports | self.named.attributes

        def check(place: Scalar, names: Iterable[str]) -> None:
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


