"""A glance at a backend file, for listings: no rule is read and nothing is checked, so that it costs milliseconds."""

from __future__ import annotations

from dovetail.plugin import BackendSummary, Source

from dovetail_schemas.yaml_source import load_tree


def peek_backend(source: Source) -> BackendSummary:
    """What a listing shows of a backend file; nothing else in it is checked, and onnx is not imported.

    Raises:
        SchemaError: It is not YAML, or its name is missing.
    """
    tree = load_tree(source)
    emit = tree.get("emit")
    engines = emit.entries("emit").get("engines") if emit else None
    name = tree.require("backend").text("backend")
    summary, device = (node.text(key) if (node := tree.get(key)) else "" for key in ("summary", "device"))
    return BackendSummary(
        name,
        summary,
        device,
        tuple(word.raw for word in engines.words("engines")) if engines else (),
    )
