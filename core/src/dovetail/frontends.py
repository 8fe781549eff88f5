"""Models from files: ONNX files are read by core, files of other formats by the frontends of plugins."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin.isolation import PluginWarning, calling, described, foreign_output

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.protocols import Frontend
    from dovetail.plugin.registry import Registry

__all__ = ["open_file"]

_OWN = (".onnx", ".onnxtxt", ".txt")
"""Endings of the files that core reads itself."""


class _Installed(NamedTuple):
    who: str  # the frontend with its distribution, for messages
    frontend: Frontend


def open_file(path: Path, plugins: PluginSet | None = None) -> Model:
    """Open a model: by the frontend that reads files of its suffix, else as ONNX.

    Args:
        path: The file; `-` is ONNX text on standard input.
        plugins: Have the frontends; by default all that are installed, loaded only if the suffix is not ONNX's.

    Raises:
        DovetailError: The file cannot be read or holds no valid model, or two frontends read files of its suffix.
    """
    from dovetail.ir.opening import open_model

    if not path.suffix or path.suffix in _OWN:  # `-` has none
        return open_model(path)
    from dovetail.plugin.loader import load_plugins

    found, endings = _frontend_for(path, (plugins or load_plugins()).registry)
    if found is not None:
        return _read(path, found)
    try:
        return open_model(path)
    except DovetailError as error:
        if not endings or not path.is_file():
            raise
        hint = f"{error.hint}; frontends are installed for {', '.join(endings)}"
        raise DovetailError(error.message, hint) from error


def _frontend_for(path: Path, registry: Registry) -> tuple[_Installed | None, list[str]]:
    """Return the frontend with the longest suffix that `path` ends with, and the suffixes of all."""
    by_suffix: dict[str, _Installed] = {}
    clashes: dict[str, DovetailError] = {}
    for name in registry.frontend:
        who = f"frontend '{name}' of {registry.frontend.entry(name).owner}"
        try:
            frontend = _checked(registry, name, who)
        except DovetailError as error:
            warnings.warn(f"{error.message}; it is left out", PluginWarning, stacklevel=3)
            continue
        for suffix in frontend.suffixes:
            other = by_suffix.setdefault(suffix, _Installed(who, frontend))
            if other.frontend is not frontend:
                message = f"{path}: {other.who} and {who} both read files of the suffix {suffix}"
                clashes[suffix] = DovetailError(message, "leave one of them out with --no-plugin")
    suffix = max((suffix for suffix in by_suffix if path.name.endswith(suffix)), key=len, default="")
    if suffix in clashes:
        raise clashes[suffix]
    return by_suffix.get(suffix), sorted(by_suffix)


def _checked(registry: Registry, name: str, who: str) -> Frontend:
    """Load a frontend, and check its suffixes."""
    found = registry.frontend[name]
    with calling(who):
        frontend = found()
    suffixes = getattr(frontend, "suffixes", None)
    if not (isinstance(suffixes, tuple) and suffixes and all(isinstance(suffix, str) for suffix in suffixes)):
        raise DovetailError(f"{who}: 'suffixes' is not a tuple of texts", "see docs/plugins.md")
    for suffix in suffixes:
        if not suffix.startswith(".") or suffix.endswith(_OWN):
            why = "core reads these" if suffix.startswith(".") else "it must start with a dot"
            raise DovetailError(f"{who}: it cannot read files of the suffix '{suffix}': {why}", "see docs/plugins.md")
    if not hasattr(frontend, "read"):
        raise DovetailError(f"{who} has no read", "see docs/plugins.md")
    return frontend


def _read(path: Path, found: _Installed) -> Model:
    """Read a file, and check the model that comes of it."""
    from dovetail.ir.opening import check_regular

    check_regular(path)
    try:
        with foreign_output(found.who):
            given = found.frontend.read(path)
        model = _as_model(given, path, found.who)
        _ = model.source  # checks it
    except DovetailError as error:
        message = error.message if path.name in error.message else f"{path}: {error.message}"
        hint = f"{error.hint}; {found.who} read it" if error.hint else f"{found.who} read it"
        raise DovetailError(message, hint) from error
    except (Exception, SystemExit, GeneratorExit) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if isinstance(line, int) else str(path)
        hint = "if the file is correct, report it to the distribution; --debug shows where it failed"
        raise DovetailError(f"{where}: {found.who} cannot read it: {described(error)}", hint) from error
    return model


def _as_model(given: object, path: Path, who: str) -> Model:
    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.ir.opening import open_proto

    if isinstance(given, onnx.ModelProto):
        return open_proto(given, str(path), path)
    if isinstance(given, ir.Model):
        return Model(given, path)
    if isinstance(given, Model):
        given.path = given.path or path
        return given
    raise DovetailError(
        f"{who} returns {type(given).__name__} for {path}",
        "`read` returns an onnx.ModelProto, an onnx_ir.Model or a dovetail Model",
    )
