"""Keys that the format has and that nothing reads yet: whoever relies on one has to be told.

They are checked like all others, so that a file can be written for what is to come; compiling with it is an error.
Whoever gives one of them its meaning takes it off this list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar

__all__ = ["refuse_unread"]

_SECTIONS = {"border": ("in", "out"), "emit": ("artifacts",), "precision": ("typed",)}
_OF_RULES = ("same_scale",)


def refuse_unread(layers: Iterable[Entries]) -> None:
    """Refuse keys that nothing reads.

    Args:
        layers: The file, what it extends and the variants that apply.

    Raises:
        SchemaError: The first such key, with file and line.
    """
    for layer in layers:
        for what, key in _unread(layer):
            raise key.error(f"nothing reads '{key.raw}' of {what} yet, so it would change nothing; leave it out")


def _unread(layer: Entries) -> Iterator[tuple[str, Scalar]]:
    for section, keys in _SECTIONS.items():
        yield from ((section, key) for key in _keys(layer.get(section)) if key.raw in keys)
    rules = [("unlisted operators", layer.get("unlisted"))]
    ops = layer.get("ops")
    rules += [(key.raw, rule) for key, rule in ops.entries("ops")] if ops else []
    for operator, rule in rules:
        yield from ((operator, key) for key in _keys(rule) if key.raw in _OF_RULES)


def _keys(node: Node | None) -> list[Scalar]:
    if isinstance(node, Items):
        return [key for item in node.items for key in _keys(item)]
    return [key for key, _ in node] if isinstance(node, Entries) else []
