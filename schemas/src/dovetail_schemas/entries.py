"""Entries: the merged settings of one operator from all files.

    unlisted < group < named operator < variant < the extending file

Keys merge one by one: a more specific value replaces the value of the same key, and the rest of the rule stays. Three
keys depend on each other: `shape` also replaces `limits`, which use its names, and `rows`, which hold shapes and limits
of their own, replace both and are replaced by either. `limits` alone keep the less specific shape. The word `null`
drops a key, or the rule of an operator, which must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from dovetail_schemas.errors import near_miss, one_of
from dovetail_schemas.policy_file import split_operator
from dovetail_schemas.yaml_source import Entries, Node, Scalar, drops

ONE_KEY = frozenset({"shape", "limits", "rows"})
_REPLACES = {
    "shape": frozenset({"limits", "rows"}),
    "limits": frozenset({"rows"}),
    "rows": frozenset({"shape", "limits"}),
}
RULE_KEYS = ("role", "policy", "types", "shape", "limits", "rows", "set", "keep", "same_scale", "fuses", "note")
_STATUS = ("refuse", "forbid")


class RuleEntry(NamedTuple):
    """The merged settings of one operator, not yet compiled to a rule.

    Attributes:
        status: `ok`, `refuse` or `forbid`; `drop` for an entry that removes the rule below.
        keys: The merged keys; one that is dropped has the word `null`.
        place: The most specific place that sets any key.
        listed: Whether a file names the operator.
        met: Dropped keys that a less specific entry has; for a dropped rule, whether there is one.
    """

    status: Literal["ok", "refuse", "forbid", "drop"]
    keys: Mapping[str, Node]
    place: Node
    listed: bool = True
    met: frozenset[str] = frozenset()

    def under(self, other: RuleEntry) -> RuleEntry:
        """Merge the more specific entry `other` into this one."""
        if other.status == "drop":
            return other._replace(met=frozenset(("",)))
        if other.status != "ok":
            return other
        replaced = {key for above in other.keys for key in _REPLACES.get(above, ())}
        kept = {key: value for key, value in self.keys.items() if key not in replaced}
        met = {key for key, value in other.keys.items() if drops(value) and key in self.keys}
        return other._replace(keys={**kept, **other.keys}, met=self.met | other.met | met)

    def settled(self, what: str) -> RuleEntry:
        """Return the entry without dropped keys.

        Raises:
            SchemaError: A key is dropped that no less specific entry has; `what` names the operator.
        """
        for key, value in self.keys.items():
            if drops(value) and key not in self.met:
                near = near_miss(key, [name for name, node in self.keys.items() if not drops(node)])
                raise value.error(f"there is no '{key}' of {what} below to drop{near}")
        kept = {key: value for key, value in self.keys.items() if not drops(value)}
        return self._replace(keys=kept) if len(kept) < len(self.keys) else self


def parse_unlisted(node: Node) -> RuleEntry:
    """Parse the section `unlisted:`.

    Raises:
        SchemaError: It is neither `refuse`, `forbid` nor a mapping of rule keys.
    """
    return _entry(node, "unlisted", node)._replace(listed=False)


def collect_entries(ops: Entries, groups: Mapping[str, list[Scalar]]) -> dict[tuple[str, str], RuleEntry]:
    """Collect the entries of all operators in one `ops:` table.

    Raises:
        SchemaError: An operator, group or key is unknown, or an operator is given twice on one level.
    """
    levels: tuple[dict[tuple[str, str], RuleEntry], ...] = ({}, {})
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
    for operator, entry in by_name.items():
        if operator in by_group and by_group[operator].status == "drop":
            raise entry.place.error(f"'{operator[1]}' is dropped with its group; drop the other operators by name")
    return {
        operator: by_group[operator].under(by_name[operator])
        if operator in by_group and operator in by_name
        else by_name.get(operator) or by_group[operator]
        for operator in {**by_group, **by_name}
    }


def _entry(node: Node, what: str, place: Node) -> RuleEntry:
    if drops(node):
        return RuleEntry("drop", {}, place)
    if isinstance(node, Entries):
        node.only(what, RULE_KEYS)
        keys = {key.raw: value for key, value in node}
        if "rows" in keys and len(ONE_KEY & keys.keys()) > 1:
            raise node.error(f"{what}: rows hold their own shape and limits; write these inside the rows")
        return RuleEntry("ok", keys, place)
    status = node.text(what)
    if status not in _STATUS:
        raise node.error(f'{what}: "{status}" is not one of {one_of(_STATUS)}, nor a mapping')
    return RuleEntry(cast(Literal["refuse", "forbid"], status), {}, place)
