"""The registered YAML format of backend files; nothing heavy is imported before a file is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from dovetail.plugin import BackendFormat, BackendSummary, Source

from dovetail_schemas.errors import FileName, SchemaError
from dovetail_schemas.yaml_source import load_tree

if TYPE_CHECKING:
    from dovetail.plugin import Backend, FindFile


class BackendYaml(BackendFormat):
    """Backends as YAML files."""

    suffix = ".backend.yaml"
    endings = (".yaml", ".yml")

    def name(self, source: Source) -> str:
        """Return the value of the line `backend:`, without parsing the file.

        Raises:
            SchemaError: There is no such line.
        """
        from dovetail_schemas.yaml_source import source_bytes

        for line in source_bytes(source).decode("utf-8-sig", errors="replace").splitlines():
            key, colon, value = line.partition(":")
            if key == "backend" and colon:
                return value.partition(" #")[0].strip().strip("'\"")
        raise SchemaError("no line says 'backend: NAME'", FileName(source.name, str(source)))

    def peek(self, source: Source) -> BackendSummary:
        """Return the listing entry of a file; see `peek_backend`."""

        return peek_backend(source)

    def load(self, source: Source, find: FindFile, options: Mapping[str, str], facts: Collection[str]) -> Backend:
        """Load the backend; see `load_backend`. A key that nothing reads is an error."""
        from dovetail_schemas.backend_file import load_backend

        return load_backend(source, find, options=options, facts=frozenset(facts), unread=False)

    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], object]
    ) -> None:
        """Check the parts that loading does not reach; see `lint_backend`."""
        from dovetail_schemas.check_command import lint_backend

        lint_backend(source, known, load)


def peek_backend(source: Source) -> BackendSummary:
    """Return the listing entry of a backend file, without checking the rest or importing onnx.

    Raises:
        SchemaError: It is not YAML, or the name is missing.
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
