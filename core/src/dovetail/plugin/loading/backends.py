"""Loading of backends, from files or classes, with the registered policies, base files and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.planning.placement import HOST
from dovetail.plugin.backend import Backend
from dovetail.plugin.loading.backend_files import named_format_of, names_file, use_file
from dovetail.plugin.loading.contracts import class_of, derived
from dovetail.plugin.loading.isolation import calling, described, foreign_output

if TYPE_CHECKING:
    from dovetail.planning.plan import PlannedBackend
    from dovetail.planning.request import BackendChoice
    from dovetail.plugin.backend import Source
    from dovetail.plugin.loading.registry import Registry


def check_installed(registry: Registry, entries: Iterable[PlannedBackend]) -> None:
    """Check whether the backends of a plan are installed.

    Args:
        registry: The installed backends.
        entries: The plan's backends.

    Raises:
        DovetailError: One is missing; the error names the distribution and version that the plan was made with.
    """
    for entry in entries:
        name, made_with, file = entry.name, entry.distribution, Path(entry.path)
        if name not in registry.backend and file.is_absolute() and file.is_file():
            use_file(registry, str(file))
        if name in registry.backend:
            continue
        try:
            registry.backend.entry(name)
        except DovetailError as error:
            if not made_with or registry.backend.is_clash(name):
                raise
            broken = [text for text in registry.absent if f"({made_with.partition(' ')[0]} " in text]
            owner, _, version = made_with.partition(" ")
            series = ".".join(version.split(".")[: 2 if version.startswith("0.") else 1])
            state = f"it needs {owner} {series}.x, and the plan was made with {version}"
            hint = f"pip install '{owner}=={series}.*'"
            if names_file(made_with):
                state, hint = f"the plan was made with the file {made_with}", "name the file with --backend"
            state, hint = ("; ".join(broken), error.hint) if broken else (state, hint)
            raise DovetailError(f"backend '{name}' is not here: {state}", hint) from None


def load_chosen(registry: Registry, choice: BackendChoice) -> Backend:
    """Load a chosen backend with its options.

    Raises:
        DovetailError: No plugin brings it, an option is unknown, or its file or class is invalid.
    """
    name = choice.name
    if name == HOST and HOST not in registry.backend:
        raise DovetailError(
            "the backend 'host', which runs what no other backend takes, is not installed or was left out",
            "pip install dovetail-host",
        )
    found = registry.backend[name]
    if registry.backend.is_file(name):
        return load_backend_file(registry, found, choice.own_options)
    owner = registry.backend.entry(name).owner
    cls: Any = class_of(found, registry.backend.title(name), Backend)
    return _made(registry.backend.title(name), owner, lambda: cls(choice.own_options))


def asking(registry: Registry, backend: Backend) -> AbstractContextManager[None]:
    """Guard calls into a backend: an error raised in the block names the backend, not the calling pass."""
    table = registry.backend
    return calling(table.title(backend.name) if backend.name in table else f"backend '{backend.name}'")


def load_backend_file(registry: Registry, source: Source, options: Mapping[str, str]) -> Backend:
    """Load a backend file; names in it refer to registered plugin components.

    Raises:
        DovetailError: No installed format reads it, an option is unknown, or the file is invalid.
    """

    def find(kind: str, name: str) -> Source | None:
        table = getattr(registry, kind)
        return seen(table[name]) if name in table and table.is_file(name) else None

    seen(source)
    title, format_ = named_format_of(registry, source)
    what = f"{source.name}, read by {title},"
    return _made(what, title, lambda: format_.load(source, find, options, frozenset(registry.fact)))


def _made(what: str, owner: str, make: Callable[[], Backend]) -> Backend:
    """Create a backend with plugin code, and check that it implements the contract."""
    try:
        with foreign_output(what):
            backend = make()
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise DovetailError(f"{what} cannot be made: {described(error)}", f"report it to {owner}") from error
    return derived(backend, what, Backend)
