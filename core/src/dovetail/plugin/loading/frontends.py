"""Reading and writing models through registered front ends; core itself knows no file format."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.files import entries, seen, unfetched
from dovetail.ir.model import Model
from dovetail.plugin.frontend import Frontend
from dovetail.plugin.loading.by_suffix import Installed, chosen_for, installed
from dovetail.plugin.loading.contracts import overrides
from dovetail.plugin.loading.isolation import calling, described, foreign_output, named_errors

if TYPE_CHECKING:
    from dovetail.ir.dialect import Dialect
    from dovetail.plugin.loading.loader import PluginSet
    from dovetail.plugin.loading.registry import Registry


_WAY_OUT = "pip install dovetail-onnx, which reads ONNX models"
_OBJECTS = "an onnx.ModelProto, an onnx_ir.Model, or the bytes of a model file"


def open_any(source: object, plugins: PluginSet | None = None) -> Model:
    """Return `source` as a model.

    Args:
        source: A `Model`, which gets the additions that plugins make to opened models, the path of a file, or an object
            that a front end converts: `dovetail-onnx` takes an `onnx.ModelProto`, an `onnx_ir.Model` and the bytes of a
            model file.
        plugins: The plugins with the front ends; all installed ones by default.

    Raises:
        DovetailError: No front end takes `source`, or the model is invalid.
        UsageError: The type of `source` is not that of a model.
    """
    if isinstance(source, Model):
        plugins = _plugins(plugins)
        plugins.prepare()
        return plugins.extend(source)
    if isinstance(source, (str, os.PathLike)):
        if not os.fspath(source):
            raise UsageError("the path of the model is empty", "name the file of a model")
        return open_file(Path(source), plugins)
    plugins = _plugins(plugins)
    plugins.prepare()
    return plugins.extend(open_object(source, plugins.registry))


def open_file(path: Path, plugins: PluginSet | None = None) -> Model:
    """Open a model with the front end for the suffix of its file.

    Args:
        path: The file; `-` is standard input, read by the front end for files without a suffix of their own.
        plugins: The plugins with the front ends; all installed ones by default.

    Raises:
        DovetailError: The file cannot be read or holds no valid model, or not exactly one front end reads files of its
            suffix.
    """
    plugins = _plugins(plugins)
    registry = plugins.registry
    found, suffix, suffixes = chosen_for(path, registry.frontend, Frontend, "read")
    if str(path) != "-":
        check_regular(path)
    if found is None:
        known = f"installed front ends read {', '.join(suffixes)}" if suffixes else "no front end is installed"
        raise DovetailError(f"{path}: no front end reads such files", f"{_WAY_OUT}; {known}")
    plugins.prepare()
    try:
        return plugins.extend(_read(path, found, registry))
    except DovetailError as error:
        # Weights may lie in another file, of the same name up to the suffix.
        beside = [other for other in entries(path.parent) if other.stem == path.stem] if path.is_file() else []
        if (pointer := next(filter(None, map(unfetched, beside)), None)) is not None:
            raise pointer from error
        if suffix or not suffixes:
            raise
        raise DovetailError(
            error.message, f"{error.hint}; front ends are installed for {', '.join(suffixes)}"
        ) from error


def open_object(source: object, registry: Registry, path: Path | None = None) -> Model:
    """Convert an object in memory to a model, with the first front end that accepts it.

    Args:
        source: The object.
        registry: The registry with the front ends.
        path: The file that the object was read from, or None.

    Raises:
        DovetailError: The model is invalid, or no front end converts objects.
        UsageError: No front end accepts an object of this type.
    """
    model = _converted(source, registry, path)
    if model is None:
        raise UsageError(f"{type(source).__name__} is not a model", f"give a path, a dovetail Model, or {_OBJECTS}")
    return model


def _converted(source: object, registry: Registry, path: Path | None) -> Model | None:
    """Convert `source` with the first front end that knows its type; None if none does."""
    able = [found for found in _installed(registry) if overrides(found.made, Frontend, "convert")]
    if not able:
        raise DovetailError(f"no front end takes {type(source).__name__}", _WAY_OUT)
    for found in able:
        with calling(found.title):
            model: Model | None = found.made.convert(source, path)
        if model is not None:
            return model
    return None


def open_declared(path: Path, registry: Registry) -> Model:
    """Open a file that was written without tensor data; the tensors read as zeros.

    Raises:
        DovetailError: The file cannot be read, or no front end reads such files.
    """
    for found in _installed(registry):
        if overrides(found.made, Frontend, "open_declared"):
            with calling(found.title):
                model: Model = found.made.open_declared(path)
            return model
    raise DovetailError(f"{path}: no front end reads such files", _WAY_OUT)


def write_file(
    model: Model,
    path: Path,
    registry: Registry | None = None,
    *,
    external: bool | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write a model with the front end for the suffix of its file.

    Args:
        model: The model.
        path: The file.
        registry: The registry with the front ends; by default that of all installed plugins.
        external: Store weights outside the file (True), inside it (False), or as the front end chooses (None).
        progress: Called with ("save", weights written, weights in total).

    Raises:
        DovetailError: Not exactly one front end writes such files, or the file cannot be written.
    """
    registry = registry or _plugins(None).registry
    found = chosen_for(path, registry.frontend, Frontend, "write").found
    if found is None:
        why = f"{path}: no front end writes such files"
        raise DovetailError(why, "pip install dovetail-onnx, which writes ONNX models")
    with named_errors(found.title):
        found.made.write(model, path, external=external, progress=progress)


def dialect_of(registry: Registry) -> Dialect | None:
    """Return the dialect of models built in memory: that of the first front end that has one; None if none has."""
    return next((found.made.dialect for found in _installed(registry) if found.made.dialect is not None), None)


def give_dialect(model: Model, registry: Registry) -> None:
    """Give `model` the dialect of the installed front ends, unless it has one."""
    if model.dialect is None:
        model.dialect = dialect_of(registry)


def check_regular(path: Path) -> None:
    """Reject a path that is not a regular file: a pipe or a device could block, or never end.

    Raises:
        DovetailError: Nothing exists there, it is not a regular file, or its path cannot be followed.
    """
    try:
        mode = seen(path).stat().st_mode
    except FileNotFoundError:
        raise DovetailError(f"{path} does not exist", "check the path of the model") from None
    except (OSError, ValueError) as error:  # no permission, or a name that is too long or holds a NUL
        reason = getattr(error, "strerror", None) or error
        raise DovetailError(f"{path} cannot be read: {reason}", "check the path of the model") from error
    if stat.S_ISDIR(mode):
        raise DovetailError(f"{path} is a folder, not a model", "name the file of the model in it")
    if not stat.S_ISREG(mode):
        raise DovetailError(f"{path} is not a regular file", "copy the model into a file first")


def _plugins(plugins: PluginSet | None) -> PluginSet:
    from dovetail.plugin.loading.loader import load_plugins

    return plugins or load_plugins()


def _installed(registry: Registry) -> Iterator[Installed]:
    return installed(registry.frontend, Frontend)


def _read(path: Path, found: Installed, registry: Registry) -> Model:
    """Read a file and check the resulting model."""
    words_errors = found.made.dialect is not None
    try:
        with foreign_output(found.title):
            given = found.made.read(path)
        model = given if isinstance(given, Model) else _converted(given, registry, path)
        if model is None:
            problem = f"{found.title} returns {type(given).__name__} for {path}"
            raise DovetailError(problem, f"`read` returns a dovetail Model, {_OBJECTS}")
        model.path = model.path or path
        if not words_errors:
            give_dialect(model, registry)
            _ = model.source  # runs the check
    except DovetailError as error:
        if words_errors:
            raise
        message = error.message if path.name in error.message else f"{path}: {error.message}"
        hint = f"{error.hint}; {found.title} read it" if error.hint else f"{found.title} read it"
        raise DovetailError(message, hint) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if isinstance(line, int) else str(path)
        hint = "if the file is correct, report it to the distribution; --debug shows where it failed"
        raise DovetailError(f"{where}: {found.title} cannot read it: {described(error)}", hint) from error
    return model
