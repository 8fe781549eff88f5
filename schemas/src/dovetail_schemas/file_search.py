"""Search for the files that a backend file names: policies, base files and variants."""

from __future__ import annotations

from dovetail.files import seen
from dovetail.plugin import FindFile, Source

from dovetail_schemas.yaml_source import Node

_FOLDERS = {"policy": ("../policies", "."), "backend": (".", "../backends")}


def find_beside(source: Source, kind: str, name: str) -> Source | None:
    """Search near the file that uses a name: `../policies/fp16.yaml`, `bpu-int8.yaml`, `bpu_int8.yaml`."""
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
    """Check whether it is a file; False for a name that no file can have, such as an overlong one."""
    try:
        return seen(source).is_file()
    except OSError:
        return False


def find_file(find: FindFile | None, source: Source, kind: str, name: str) -> Source | None:
    """Look up a file with the caller's `find`, then in folders near the file that uses the name."""
    found = find(kind, name) if find else None
    return found if found is not None and is_file(found) else find_beside(source, kind, name)


def require_file(find: FindFile | None, source: Source, kind: str, node: Node, key: str) -> Source:
    """Find the file that `node` names.

    Raises:
        SchemaError: There is no such file.
    """
    name = node.text(key)
    found = find_file(find, source, kind, name)
    if found is None:
        raise node.error(f"no {kind} file '{name}' is found")
    return found
