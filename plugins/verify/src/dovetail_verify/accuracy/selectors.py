"""The shortest list of selectors that names some nodes, and none that must stay as they are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

_PARTS = re.compile(r"[^/._:\d]*(?:\d+|[/._:]|$)")
_PATTERN = frozenset("*?[")
_FORMS = ("name:", "type:", "region:")


def shortest_selectors(wanted: Collection[str], others: Collection[str], operators: Mapping[str, str]) -> list[str]:
    """Selectors of the nodes in `wanted`: patterns and operators where they fit, names elsewhere.

    The work is linear in the length of all names.

    Args:
        wanted: Names of nodes.
        others: Names of nodes that no selector may select. What is in neither may be selected as well.
        operators: The operator of every one of these nodes, by name.
    """
    covers: dict[str, set[str]] = defaultdict(set)
    refused: set[str] = set()
    for name in others:
        refused.add(f"type:{operators[name]}")
        refused.update(_patterns(name))
    for name in wanted:
        for selector in (f"type:{operators[name]}", *_patterns(name)):
            if selector not in refused:
                covers[selector].add(name)
    left, found = dict.fromkeys(wanted), []
    # The largest first; of equals the shortest. One that selects a single node is no shorter than its name.
    for selector, names in sorted(covers.items(), key=lambda item: (-len(item[1]), len(item[0]), item[0])):
        if len(names) > 1 and sum(name in left for name in names) > 1:
            found.append(selector)
            for name in names:
                left.pop(name, None)
    return [*found, *(f"name:{name}" if name.startswith(_FORMS) else name for name in left)]


def _patterns(name: str) -> list[str]:
    """Patterns that fit a name: its beginnings, cut behind numbers and separators, and `*`."""
    if _PATTERN & set(name) or name.startswith(_FORMS):
        return []
    ends = [0, *(found.end() for found in _PARTS.finditer(name))]
    return list(dict.fromkeys(f"{name[:end]}*" for end in ends if end < len(name)))
