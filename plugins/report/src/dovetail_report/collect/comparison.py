"""Two results of one model side by side."""

from __future__ import annotations

from typing import Any

_ALONE = ("histograms", "activations", "ranges", "scales")


def compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Compare the documents of two results.

    Returns:
        `second`, the document of the second result without the histograms that only its own report shows; `changes`: a
        row for each node that is placed or computed differently, or that only one of them has: its name, operator and
        both placements; and `alike`: how many are the same in both.
    """
    one, other = _placements(first), _placements(second)
    changes = []
    for key in dict.fromkeys((*one, *other)):
        here, there = one.get(key), other.get(key)
        if here != there:
            changes.append({"node": key[0], "operator": key[1], "first": _text(here), "second": _text(there)})
    return {
        "second": {name: table for name, table in second.items() if name not in _ALONE},
        "changes": changes,
        "alike": len(one.keys() & other.keys()) - sum(row["first"] != "" != row["second"] for row in changes),
    }


def _placements(document: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str]]:
    nodes = document["nodes"]
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for number, name in enumerate(nodes["name"]):
        key = (name, nodes["operators"][nodes["operator"][number]])
        backend, precision = (nodes[f"{kind}s"][nodes[kind][number]] for kind in ("backend", "precision"))
        found.setdefault(key, (backend, precision))
    return found


def _text(place: tuple[str, str] | None) -> str:
    return "" if place is None else f"{place[0]}/{place[1] or 'no float'}"
