"""The format of backend files that this distribution registers. Nothing heavy is imported before a file is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from dovetail.plugin import BackendFormat

from dovetail_schemas.errors import FileName, SchemaError

if TYPE_CHECKING:
    from dovetail.plugin import Backend, BackendSummary, FindFile, Source


class BackendYaml(BackendFormat):
    """Backends as YAML files."""

    suffix = ".backend.yaml"
    endings = (".yaml", ".yml")

    def name(self, source: Source) -> str:
        """The value of the line `backend:`; the file itself is parsed when somebody uses it.

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
        """What a listing shows; see `peek_backend`."""
        from dovetail_schemas.peek import peek_backend

        return peek_backend(source)

    def load(self, source: Source, find: FindFile, options: Mapping[str, str], facts: Collection[str]) -> Backend:
        """The backend; see `load_backend`. A key that nothing reads is refused."""
        from dovetail_schemas.backend_file import load_backend

        return load_backend(source, find, options=options, facts=frozenset(facts), unread=False)

    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], object]
    ) -> None:
        """Check what loading leaves out; see `lint_backend`."""
        from dovetail_schemas.lint import lint_backend

        lint_backend(source, known, load)
