"""Find the files that a backend file names: policies, and backends that it extends or lays over others."""

from __future__ import annotations

from dovetail.plugin import FindFile, Source

from dovetail_schemas.yaml_source import Node

_FOLDERS = {"policy": ("../policies", "."), "backend": (".", "../backends")}


def find_beside(source: Source, kind: str, name: str) -> Source | None:
    """The file of a name near the file that uses it: `../policies/fp16.yaml`, `bpu-int8.yaml`, `bpu_int8.yaml`."""
    parent = getattr(source, "parent", None)
    if parent is None:
        return None
    stems = dict.fromkeys((name, name.replace("-", "_")))
    for folder in _FOLDERS[kind]:
        for stem in stems:
            for ending in (".yaml", ".backend.yaml"):
                candidate = parent.joinpath(folder, stem + ending)
                if is_file(candidate):
                    return candidate
    return None


def is_file(source: Source) -> bool:
    """Is it a file; a name that no file can have (one that is too long, say) is none."""
    try:
        return source.is_file()
    except OSError:
        return False


def find_file(find: FindFile | None, source: Source, kind: str, name: str) -> Source | None:
    """The caller's `find` is asked first, then the folders beside the file that uses the name."""
    found = find(kind, name) if find else None
    return found if found is not None and is_file(found) else find_beside(source, kind, name)


def require_file(find: FindFile | None, source: Source, kind: str, node: Node, key: str) -> Source:
    """Find the file that `node` names.

    Raises:
        SchemaError: There is none.
    """
    name = node.text(key)
    found = find_file(find, source, kind, name)
    if found is None:
        raise node.error(f"no {kind} file '{name}' is found")
    return found
