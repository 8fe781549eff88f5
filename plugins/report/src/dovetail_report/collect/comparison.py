"""Two results of one model side by side."""

from __future__ import annotations

from typing import Any

_SIDE_BY_SIDE = ("title", "coverage", "command", "backends", "counts", "files", "accuracy", "goals", "times")


def compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Compare the documents of two results.

    Returns:
        `second`, the summary of the second result, and `changes`: a row for each node that is placed or computed
        differently, or that only one of them has: its name, operator, both placements, and its index in the first.
    """
    one, other = _placements(first), _placements(second)
    changes = []
    for key in dict.fromkeys((*one, *other)):
        here, there = one.get(key), other.get(key)
        if here is None or there is None or here[:2] != there[:2]:
            changes.append({
                "node": key[0], "operator": key[1], "first": _text(here), "second": _text(there),
                "at": -1 if here is None else here[2],
            })  # fmt: skip
    return {
        "second": {name: second[name] for name in _SIDE_BY_SIDE}
        | {
            "nodes": second["counts"]["nodes"],
            "regions": sum(row["regions"] for row in second["backends"]),
            "borders": second["borders"],
        },
        "changes": changes,
        "alike": len(one.keys() & other.keys()) - sum(row["first"] != "" != row["second"] for row in changes),
    }


def _placements(document: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str, int]]:
    nodes = document["nodes"]
    found: dict[tuple[str, str], tuple[str, str, int]] = {}
    for number, name in enumerate(nodes["name"]):
        key = (name, nodes["operators"][nodes["operator"][number]])
        backend, precision = (nodes[f"{kind}s"][nodes[kind][number]] for kind in ("backend", "precision"))
        found.setdefault(key, (backend, precision, number))
    return found


def _text(place: tuple[str, str, int] | None) -> str:
    return "" if place is None else f"{place[0]}/{place[1] or 'no float'}"
