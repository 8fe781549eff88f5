"""Layers of backend files: bases, files and variants, merged key by key.

A later value replaces an earlier one. The word `null` drops a key, which must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail_schemas.errors import near_miss
from dovetail_schemas.yaml_source import Entries, Node, Scalar, drops

MERGED = ("precision", "open_extents", "facts", "types", "groups", "region", "border", "place", "emit")
"""Sections that merge by their own keys; all others, except for `ops`, are replaced."""

_KEPT = ("backend", "extends", "device", "opset", "options", "variants", "file", "when")


def merge_layers(layers: Sequence[Entries]) -> Entries:
    """Merge the keys of all layers, the earliest first, except for `ops`: see `dovetail_schemas.entries`.

    Raises:
        SchemaError: A key is dropped that is not there, or that every file needs.
    """
    merged: dict[str, tuple[Scalar, Node]] = {}
    for layer in layers:
        for key, value in layer:
            if drops(value):
                if key.raw == "ops":
                    raise value.error("ops cannot be dropped as a whole; drop operators, as in `Conv: null`")
                if key.raw in _KEPT:
                    raise value.error(f"'{key.raw}' cannot be dropped; give another value")
                _drop(key, value, merged, "the layers below")
            elif key.raw in MERGED:
                below = merged[key.raw][1].entries(key.raw) if key.raw in merged else ()
                merged[key.raw] = key, _merge_section(key.raw, below, value.entries(key.raw))
            else:
                merged[key.raw] = key, value
    first = layers[0]
    return Entries(first.file, first.line, tuple(merged.values()))


def _merge_section(name: str, below: Iterable[tuple[Scalar, Node]], above: Entries) -> Entries:
    pairs = {key.raw: (key, value) for key, value in below}
    for key, value in above:
        if drops(value):
            _drop(key, value, pairs, f"{name} below")
        else:
            pairs[key.raw] = key, value
    return Entries(above.file, above.line, tuple(pairs.values()))


def _drop(key: Scalar, value: Node, pairs: dict[str, tuple[Scalar, Node]], where: str) -> None:
    if key.raw not in pairs:
        raise value.error(f"there is no '{key.raw}' in {where} to drop{near_miss(key.raw, pairs)}")
    del pairs[key.raw]
