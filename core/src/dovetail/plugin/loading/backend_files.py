"""Backend files of plugins: their discovery in a package, and the registered format that reads each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.files import seen
from dovetail.installed import package_folder
from dovetail.plugin.backend import BackendFormat
from dovetail.plugin.loading.contracts import made
from dovetail.plugin.loading.isolation import described

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from dovetail.plugin.backend import Source
    from dovetail.plugin.loading.registry import Registry


_WAY_OUT = "pip install dovetail-schemas, or do not leave it out (--no-plugin, DOVETAIL_PLUGINS)"


def formats_of(registry: Registry, names: Iterable[str] | None = None) -> list[BackendFormat]:
    """Return an instance of every registered format, or of every format in `names`.

    Raises:
        DovetailError: A format cannot be loaded, or violates the contract.
    """
    table = registry.backend_format
    return [made(table[name], table.title(name), BackendFormat) for name in (table if names is None else names)]


def format_of(registry: Registry, source: Source) -> BackendFormat:
    """Return the format that reads a file, chosen by file name.

    Raises:
        DovetailError: No registered format reads it.
    """
    return named_format_of(registry, source)[1]


def named_format_of(registry: Registry, source: Source) -> tuple[str, BackendFormat]:
    """Return the format that reads a file, preceded by its name and distribution for messages.

    Raises:
        DovetailError: No registered format reads it.
    """
    formats = formats_of(registry)
    titles = dict(zip(map(id, formats), map(registry.backend_format.title, registry.backend_format), strict=True))
    for endings in ([(f, (f.suffix,)) for f in formats], [(f, tuple(f.endings)) for f in formats]):
        for format_, those in endings:
            if source.name.endswith(those):
                return titles[id(format_)], format_
    if not formats:
        raise DovetailError(f"{source.name}: no format of backend files is installed", _WAY_OUT)
    known = ", ".join(ending for format_ in formats for ending in (format_.suffix, *format_.endings))
    raise DovetailError(f"{source.name}: no format of backend files reads it", f"its name must end in one of {known}")


def backend_files(module: Any, formats: Sequence[BackendFormat]) -> list[tuple[str, str]]:
    """Return names and targets of the backend files in a package and its direct subfolders.

    Raises:
        DovetailError: A file does not name its backend.
    """
    return [
        (_name(format_, file), f"{module.__name__}:{path}")
        for path, file in _files(module, tuple(format_.suffix for format_ in formats))
        for format_ in formats
        if file.name.endswith(format_.suffix)
    ]


def names_file(text: str) -> bool:
    """Return whether a text after `--backend` is the path of a file, not a name."""
    path = _split(text)[0]
    return "/" in path or os.sep in path or path.endswith((".yaml", ".yml"))


def use_file(registry: Registry, text: str) -> str:
    """Register the backend file that a text names, without an installation.

    Args:
        registry: Receives the backend, on behalf of the path.
        text: `./acme.backend.yaml`, or with options `./acme.backend.yaml:key=value,...`; a name is returned unchanged.

    Returns:
        The text with the name of the backend instead of the path.

    Raises:
        UsageError: There is no such file.
        DovetailError: No format reads it, or another backend has its name.
    """
    if not names_file(text):
        return text
    path, options = _split(text)
    file = Path(path).resolve()
    if not seen(file).is_file():
        raise UsageError(f"there is no backend file {path}", "name a file, or a backend that `dovetail backends` lists")
    name, table = format_of(registry, file).name(file), registry.backend
    if name in table and table.entry(name).target != str(file):
        other = table.entry(name)
        raise DovetailError(
            f"{path} describes the backend '{name}', and so does {other.owner} ({other.target})",
            "give the file another name in its line 'backend:', or leave the other one out with --no-plugin",
        )
    with registry.on_behalf_of(str(file)):
        table(name, str(file))
    return f"{name}:{options}" if options else name


def _split(text: str) -> tuple[str, str]:
    """Split a path from the options after it; a path may hold colons."""
    path, _, options = text.rpartition(":")
    return (path, options) if "=" in options and not Path(text).is_file() else (text, "")


def misnamed_file(module: Any, formats: Sequence[BackendFormat]) -> str:
    """Explain why a package without hooks and backend files registers nothing, if the cause is known; else empty."""
    if not formats and hasattr(module, "__path__"):
        return f"{module.__name__} has no hooks, and no format of backend files is installed; {_WAY_OUT}"
    for path, file in _files(module, tuple(ending for format_ in formats for ending in format_.endings)):
        for format_ in formats:
            if file.name.endswith(tuple(format_.endings)):
                try:
                    _name(format_, file)
                except DovetailError:
                    continue
                where = f"{module.__name__}/{path}"
                return f"{where} looks like a backend file, and is not used: its name must end in {format_.suffix}"
    return ""


def _name(format_: BackendFormat, file: Source) -> str:
    """Return the name of the backend in a file; an error of the format becomes one that names both."""
    try:
        return format_.name(seen(file))
    except DovetailError:
        raise
    except Exception as error:
        title = f"{type(format_).__module__}.{type(format_).__qualname__}"
        raise DovetailError(f"{file.name}: {title} cannot read it: {described(error)}") from error


def _files(module: Any, endings: tuple[str, ...]) -> Iterator[tuple[str, Source]]:
    """Yield the files of a package whose names have one of the endings, with their paths in it; none for a module."""
    if not hasattr(module, "__path__"):
        return
    root = package_folder(module)
    # A name with a dot is a file; asking the file system for each takes longer than all else.
    inside = [name for name in _names(root) if "." not in name and name != "__pycache__" and (root / name).is_dir()]
    for folder, prefix in ((root, ""), *((root / name, f"{name}/") for name in inside)):
        for name in _names(folder):
            if name.endswith(endings) and (file := folder / name).is_file():
                yield prefix + name, file


def _names(folder: Traversable) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(os.listdir(folder) if isinstance(folder, Path) else (item.name for item in folder.iterdir()))
