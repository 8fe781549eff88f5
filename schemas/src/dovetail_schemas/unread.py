"""Keys of the format that nothing reads yet: a file that relies on one is refused.

Their values are checked like all others. Remove a key from the table when a reader is added; `docs/backend_files.md`
lists them from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar

UNREAD_OF_SECTIONS = {"precision": ("typed",)}
"""Keys without a reader, by the section that they stand in."""


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
    for section, keys in UNREAD_OF_SECTIONS.items():
        yield from ((section, key) for key in _keys(layer.get(section)) if key.raw in keys)


def _keys(node: Node | None) -> list[Scalar]:
    if isinstance(node, Items):
        return [key for item in node.items for key in _keys(item)]
    return [key for key, _ in node] if isinstance(node, Entries) else []
