"""File format of remarks: one line per reason, with its nodes.

Most reasons apply to many nodes. A line has up to `_PER_LINE` of them, so that a text search for a node finds readable
lines:

    {"kind": "passed", "pass": "assign-types", "rule": "policy-lower", "why": "computed in bfloat16", "nodes": ["a"]}

A node that others forced is a list: its name and their names. Quoted names in the reason that differ between nodes
become slots (`'{}'`), and the node is a list of its name, the nodes that forced it, and the names for the slots:
`["y_to_float32", ["z"], ["y"]]`.

`why` is for people; programs read `rule`, `backend`, `format`, `remedy` and `facts`, and `reason`, which is `why`
without the backend. See `docs/kinds/results.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dovetail.planning import SLOT, Remark, template

_PER_LINE = 40
_QUOTED = re.compile(r"'([^']*)'")


def grouped(remarks: Iterable[Remark]) -> list[dict[str, Any]]:
    """Group `remarks` into lines. The order of the remarks of one node is kept, the order between nodes is not."""
    lines: list[list[Remark]] = []
    open_lines: dict[tuple, int] = {}
    last: dict[str, int] = {}  # by node: the line with its latest remark
    for remark in remarks:
        key = remark.alike()
        index = open_lines.get(key)
        if not remark.node or index is None or len(lines[index]) == _PER_LINE or index < last.get(remark.node, 0):
            index = len(lines)
            lines.append([])
            if remark.node:
                open_lines[key] = index
        lines[index].append(remark)
        last[remark.node] = index
    return [_line(members) for members in lines]


def _line(members: list[Remark]) -> dict[str, Any]:
    first = members[0]
    if len(members) == 1:
        return first.as_dict()
    same = all(remark.reason == first.reason for remark in members)
    line = {key: value for key, value in first.as_dict().items() if key not in ("node", "because")}
    if not same:
        line |= {key: template(line[key]) for key in ("why", "reason") if key in line}
    nodes: list[Any] = []
    for remark in members:
        if not same:
            nodes.append([remark.node, list(remark.because), _QUOTED.findall(remark.reason)])
        else:
            nodes.append([remark.node, *remark.because] if remark.because else remark.node)
    return {**line, "nodes": nodes}


def ungrouped(lines: Iterable[dict[str, Any]]) -> Iterator[Remark]:
    """Expand the lines of `grouped`.

    Raises:
        ValueError: A line is malformed.
    """
    for line in lines:
        if not isinstance(line, dict):
            raise ValueError(f"{str(line)[:40]!r} is not a remark")
        nodes = line.get("nodes")
        if nodes is None:
            yield Remark.from_dict(line)
            continue
        shared = Remark.from_dict({key: value for key, value in line.items() if key != "nodes"})
        if not isinstance(nodes, list):
            raise ValueError("'nodes' of a remark is not a list")
        for entry in nodes:
            yield _one(shared, entry)


def _one(shared: Remark, entry: Any) -> Remark:
    """Return the remark of one entry: a name, a name with `because`, or both with names for the slots."""
    because: Any = ()
    reason: str | None = shared.reason
    name = entry
    if isinstance(entry, list) and entry:
        if isinstance(entry[-1], list):
            name, because, *names = entry
            reason = _filled(shared.reason, names[0]) if len(names) == 1 else None
        else:
            name, *because = entry
    if type(name) is not str or reason is None or because and not _texts(because):
        raise ValueError(f"{str(entry)[:40]!r} is not a node of a remark")
    return replace(shared, node=name, reason=reason, because=tuple(because))


def _filled(reason: str, names: Any) -> str | None:
    parts = reason.split(SLOT)
    if not _texts(names) or len(parts) != len(names) + 1:
        return None
    return "".join(f"{part}'{name}'" for part, name in zip(parts, names)) + parts[-1]


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
