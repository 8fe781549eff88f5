"""Limits: `term: range` lines, blocks of them, and their evaluation on one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.plugin import Refusal

from dovetail_schemas.policy_file import split_operator
from dovetail_schemas.ranges import ValueSet, parse_range
from dovetail_schemas.terms import ABSENT, Env, Term, TermError, Unknown, parse_term, split_keys
from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar

if TYPE_CHECKING:
    from dovetail_schemas.port_types import PortTypes


CheckNames = Callable[[Node, Iterable[str]], None]
"""Raises an error for a name that the operator does not have."""


class Limit(NamedTuple):
    """A term that must lie in a range.

    Attributes:
        term: The left side.
        range: The right side.
        source: File and line.
    """

    term: Term
    range: ValueSet
    source: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names used in it."""
        return (*self.term.names, *self.range.names)

    def __str__(self) -> str:
        return f"{self.term.text}: {self.range.text}"

    def check(self, env: Env) -> bool | Unknown:
        """Check whether it holds; a name that the node does not have imposes no limit."""
        value = self.term(env)
        if value is ABSENT:
            return True
        return value if isinstance(value, Unknown) else self.range.holds(value, env)

    def refusal(self, env: Env, dynamic: str) -> Refusal | Unknown | None:
        """Return why it does not hold; None if it does; `Unknown` if that depends on the region.

        Args:
            env: The values of its names.
            dynamic: The backend's treatment of extents unknown until run time.
        """
        try:
            answer = self.check(env)
        except TermError as error:
            return Refusal(f"{error}{self._numbers(env)}; needed by {self}", self.source, facts=self._facts(env))
        if answer is True or (
            isinstance(answer, Unknown) and answer.why == "run-time" and dynamic in ("accept", "profile")
        ):
            return None
        if answer is False:
            allowed = f"allowed: {self.range.text}{self._ends(env)}"
            found = self.term(env)
            return Refusal(
                f"{self.term.text} = {_show(found)}{self._numbers(env)}; {allowed}",
                self.source,
                facts={"found": _plain(found), **self._facts(env)},
            )
        if answer.why == "region":
            return answer
        open_ = answer.why == "run-time"
        state = "is not known before run time" if open_ else "is not a constant"
        facts = {"unknown": answer.name, **self._facts(env)}
        return Refusal(f"{answer.name} {state}, and {self} needs it", self.source, open_, facts)

    def _facts(self, env: Env) -> dict[str, object]:
        """Return the limit and the values of its names, as JSON data."""
        names = self.range.names if self.term.is_name else self.names
        values = {name: _plain(env[name]) for name in names}
        return {"term": self.term.text, "allowed": self.range.text} | ({"values": values} if values else {})

    def _numbers(self, env: Env) -> str:
        """Format the values of the names in a compound term: ` (KH = 3, KW = 3)`."""
        if self.term.is_name or not self.term.names:
            return ""
        return f" ({', '.join(f'{name} = {_show(env[name])}' for name in self.term.names)})"

    def _ends(self, env: Env) -> str:
        names = self.range.names
        return f" ({', '.join(f'{name} = {_show(env[name])}' for name in names)})" if names else ""


class Guard(NamedTuple):
    """The conditions under `when:`, all of which must hold."""

    limits: tuple[Limit, ...] = ()

    def check(self, env: Env) -> bool | Unknown:
        """Return True, False, or `Unknown` if it depends on the region.

        A condition that is unknown or cannot be computed counts as true: skipping its limits could accept unsupported
        nodes. A condition on a name that the node does not have counts as false.
        """
        pending: Unknown | None = None
        for limit in self.limits:
            try:
                answer = False if limit.term(env) is ABSENT else limit.check(env)
            except TermError:
                continue
            if answer is False:
                return False
            if isinstance(answer, Unknown) and answer.why == "region":
                pending = answer
        return pending or True

    def doubt(self, env: Env, dynamic: str) -> Refusal | None:
        """Return why the guard is undecidable until run time, if `check` assumes that it holds; None if it is decided.

        Args:
            env: The values of its names.
            dynamic: The backend's treatment of extents unknown until run time.
        """
        answers = (limit.refusal(env, dynamic) for limit in self.limits)
        return next((answer for answer in answers if isinstance(answer, Refusal)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names used in it."""
        return tuple(name for limit in self.limits for name in limit.names)

    def __str__(self) -> str:
        return ", ".join(map(str, self.limits))


@dataclass(frozen=True, slots=True)
class Block:
    """Limits under one guard.

    Attributes:
        when: The guard.
        limits: The limits that apply if the guard holds.
        types: The types that ports are narrowed to if the guard holds, or None.
        fuses: Operators fused with the node if the guard holds, in addition to those of the rule.
    """

    when: Guard = field(default_factory=Guard)
    limits: tuple[Limit, ...] = ()
    types: PortTypes | None = None
    fuses: tuple[str, ...] = ()


def parse_blocks(node: Node, check_names: CheckNames, parse_types: Callable[[Node], PortTypes]) -> tuple[Block, ...]:
    """Parse the section `limits:`, one mapping or a list of blocks.

    Raises:
        SchemaError: A term, range or name is invalid.
    """
    maps = node.items if isinstance(node, Items) else (node,)
    if not maps:
        raise node.error("limits: the list is empty; write {} for no limits")
    return tuple(_parse_block(item.entries("limits"), check_names, parse_types) for item in maps)


def parse_guards(node: Node | None, check_names: CheckNames) -> Guard:
    """Parse the section `when:`; without one, the guard always holds."""
    return Guard(parse_limits(node.entries("when"), check_names)) if node else Guard()


def _parse_block(entries: Entries, check_names: CheckNames, parse_types: Callable[[Node], PortTypes]) -> Block:
    types = entries.get("types")
    return Block(
        parse_guards(entries.get("when"), check_names),
        parse_limits(entries, check_names, ("when", "types", "fuses")),
        parse_types(types) if types else None,
        parse_fused(entries.get("fuses")),
    )


def parse_fused(node: Node | None) -> tuple[str, ...]:
    """Parse the operators under `fuses:`; empty without it.

    Raises:
        SchemaError: A word is no operator.
    """
    words = node.words("fuses") if node else []
    for word in words:
        split_operator(word)
    return tuple(word.raw for word in words)


def parse_limits(entries: Entries, check_names: CheckNames, skip: tuple[str, ...] = ()) -> tuple[Limit, ...]:
    """Parse the `term: range` lines of one mapping, without the keys in `skip`.

    Raises:
        SchemaError: A term, range or name is invalid.
    """
    found: list[Limit] = []
    for key, value in entries:
        if key.raw in skip:
            continue
        if entries.flow and isinstance(value, Scalar) and value.is_null:
            raise key.error(f"'{key.raw}' has no limit (inside {{ }} a comma ends a key; write one per line)")
        allowed = parse_range(value)
        check_names(value, allowed.names)
        for text in split_keys(key.raw):
            try:
                term = parse_term(text)
            except TermError as error:
                raise key.error(str(error)) from error
            check_names(key, term.names)
            found.append(Limit(term, allowed, key.where))
    return tuple(found)


def _plain(value: object) -> object:
    """Return a value as JSON data; None for an unknown one."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_show, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "?" if isinstance(value, Unknown) else str(value)
