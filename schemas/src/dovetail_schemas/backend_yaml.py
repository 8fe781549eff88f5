"""The registered YAML format of backend files; nothing heavy is imported before a file is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dovetail.files import seen
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
        """Load the backend; see `load_backend`. A key that nothing reads is an error.

        A backend that was loaded before is returned again while its files are found and read the same.
        """
        from dovetail_schemas.backend_file import load_backend

        known = _loaded_before(str(source), tuple(sorted(options.items())), frozenset(facts))
        for earlier in known:
            if earlier.is_current(find):
                return earlier.backend
        found: dict[tuple[str, str], str] = {}

        def noting(kind: str, name: str) -> Source | None:
            file = find(kind, name)
            found[kind, name] = str(file)
            return file

        backend = load_backend(source, noting, options=options, facts=frozenset(facts))
        known.append(_Loaded(backend, found, [(file, seen(file).read_bytes()) for file in backend.files or ()]))
        return backend

    def check(
        self, source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], object]
    ) -> None:
        """Check the parts that loading does not reach; see `lint_backend`."""
        from dovetail_schemas.check_command import lint_backend

        lint_backend(source, known, load)


class _Loaded(NamedTuple):
    """A backend that was loaded, with what it was made from.

    Attributes:
        backend: The backend, which nobody changes.
        found: The files that its files named, by kind and name.
        contents: All files that were read.
    """

    backend: Backend
    found: Mapping[tuple[str, str], str]
    contents: Sequence[tuple[Source, bytes]]

    def is_current(self, find: FindFile) -> bool:
        """Check that the same files are found, with the same content."""
        if any(str(find(kind, name)) != file for (kind, name), file in self.found.items()):
            return False
        return all(seen(file).is_file() and seen(file).read_bytes() == content for file, content in self.contents)


@lru_cache(maxsize=64)
def _loaded_before(source: str, options: tuple[tuple[str, str], ...], facts: frozenset[str]) -> deque[_Loaded]:
    """Return the latest backends that were loaded from a file with these options, to be added to."""
    return deque(maxlen=4)


def peek_backend(source: Source) -> BackendSummary:
    """Return the listing entry of a backend file, without checking the rest or importing onnx.

    Raises:
        SchemaError: It is not YAML, or the name is missing.
    """
    tree = load_tree(source)
    emit = tree.get("emit")
    engines = emit.entries("emit").get("engines") if emit else None
    name = tree.require("backend").text("backend")
    keys = ("summary", "device", "extends")
    summary, device, extends = (node.text(key) if (node := tree.get(key)) else "" for key in keys)
    return BackendSummary(
        name,
        summary,
        device,
        tuple(word.raw for word in engines.words("engines")) if engines else (),
        extends,
    )
