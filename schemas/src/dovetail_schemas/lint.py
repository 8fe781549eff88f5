"""What a backend file says that no compilation would notice at once: for `dovetail check`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping

from dovetail.plugin import Source

from dovetail_schemas.errors import near_miss
from dovetail_schemas.options import parse_options
from dovetail_schemas.yaml_source import Entries, Node, load_tree

_MOST_COMBINATIONS = 64
_NAMED = {
    "strategy": ("place", "strategy"),
    "region_former": ("place", "regions"),
    "engine": ("emit", "engines"),
    "emitter": ("emit", "artifacts"),
}


def lint_backend(
    source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], object]
) -> None:
    """Check what loading a file with its default options leaves out.

    Names of engines, emitters, strategies and region formers must be registered, the opset must exist, and every
    variant must load.

    Args:
        source: The file.
        known: Registered names by kind: `engine`, `emitter`, `strategy`, `region_former`.
        load: Loads the file with values of its options.

    Raises:
        SchemaError: The first thing that is wrong, with file and line.
    """
    tree = load_tree(source)
    for layer in (tree, *_variants(tree)):
        for kind, (section, key) in _NAMED.items():
            _check_names(layer, section, key, kind, known[kind])
        _check_opset(layer)
    for options in _combinations(parse_options(tree.get("options"))):
        load(options)


def _variants(tree: Entries) -> Iterator[Entries]:
    node = tree.get("variants")
    for item in getattr(node, "items", (node,)) if node is not None else ():
        yield item.entries("variants")


def _check_names(layer: Entries, section: str, key: str, kind: str, known: Collection[str]) -> None:
    held = layer.get(section)
    node = held.entries(section).get(key) if held is not None else None
    for word in node.words(key) if node is not None else ():
        if word.raw not in known:
            installed = f"; installed: {', '.join(sorted(known))}"
            raise word.error(f"unknown {kind} '{word.raw}'{near_miss(word.raw, known) or installed}")


def _check_opset(layer: Entries) -> None:
    import onnx

    node: Node | None = layer.get("opset")
    newest = onnx.defs.onnx_opset_version()
    if node is None:
        return
    for part in node.text("opset").split(".."):
        if part.isdecimal() and not 1 <= int(part) <= newest:
            raise node.error(f"opset {part} does not exist; onnx {onnx.__version__} knows 1 to {newest}")


def _combinations(declared: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """All values of all options together, or, where these are too many, all values of each option."""
    sizes = 1
    for values in declared.values():
        sizes *= len(values)
    if sizes <= _MOST_COMBINATIONS:
        for chosen in itertools.product(*declared.values()):
            yield dict(zip(declared, chosen))
        return
    for name, values in declared.items():
        for value in values:
            yield {name: value}
