"""Targets of a distribution: each is loaded and checked against the contract of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin import (
    Backend,
    BackendFormat,
    Editor,
    Emitter,
    Engine,
    Executor,
    Frontend,
    Option,
    Partitioner,
    Pass,
    ResultStore,
    Runner,
    Strategy,
)
from dovetail.plugin.loading import class_of, derived, format_of, load_backend_file, load_command
from dovetail_kernels.operator_files.library import library_of
from dovetail_schemas.yaml_source import load_tree

from dovetail_testing.list_files import read_lists

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet, Registry
    from dovetail.plugin.loading import Table


_CLASSES: dict[str, type] = {
    "pass": Pass,
    "frontend": Frontend,
    "edit": Editor,
    "strategy": Strategy,
    "partitioner": Partitioner,
    "engine": Engine,
    "emitter": Emitter,
    "executor": Executor,
    "backend_format": BackendFormat,
    "result_store": ResultStore,
}
"""Base classes of kinds whose targets are classes."""

_CALLED = ("fact", "solver", "observer", "conversion", "kernel", "device_memory")
"""Kinds whose targets are called: functions and classes."""


class Target(NamedTuple):
    """One target of a distribution.

    Attributes:
        kind: Its kind, such as `engine`.
        name: The name that it is registered under.
        target: Its location, as registered.
        problem: Why it does not load, or how it breaks the contract; empty if it is fine.
    """

    kind: str
    name: str
    target: str
    problem: str = ""


def targets_of(owner: str, plugins: PluginSet) -> Iterator[Target]:
    """Load every target that a distribution registered, and check it.

    Args:
        owner: The distribution.
        plugins: The plugins.
    """
    registry = plugins.registry
    for table in registry.tables:
        for entry in table.entries:
            if entry.owner != owner:
                continue
            problem = ""
            try:
                _check(table, entry.name, registry)
            except DovetailError as error:
                problem = f"{error.message}; {error.hint}" if error.hint else error.message
            yield Target(table.kind, entry.name, entry.target, problem)


def _check(table: Table, name: str, registry: Registry) -> None:
    """Load one target.

    Raises:
        DovetailError: It does not load, or breaks the contract of its kind.
    """
    found: Any = table[name]
    who, kind = table.title(name), table.kind
    if kind == "backend":
        _check_backend(table, name, registry)
    elif kind == "conformance":
        read_lists(found)
    elif kind == "operators":
        library_of(registry)
    elif kind in ("policy", "cost_table"):
        load_tree(found)
    elif kind == "executor" and isinstance(found, type) and Runner in found.__mro__:
        return  # the default one, which runs results for everybody
    elif kind in _CLASSES:
        class_of(found, who, _CLASSES[kind])
    elif kind == "option":
        derived(found, who, Option)
    elif kind == "command":
        load_command(registry, name)
    elif kind in _CALLED and not callable(found):
        raise DovetailError(f"{who} is {type(found).__name__}, which cannot be called", "see docs/plugins.md")
    if kind == "engine" and vars(found).get("name", name) != name:
        raise DovetailError(f"{who} calls itself '{found.name}'", "register it under the name that it has")


def _check_backend(table: Table, name: str, registry: Registry) -> None:
    found: Any = table[name]
    if not table.is_file(name):
        class_of(found, table.title(name), Backend)
        return
    known = {
        "engine": list(registry.engine),
        "emitter": list(registry.emitter),
        "strategy": list(registry.strategy),
        "partitioner": list(registry.partitioner),
        "fusion": list(registry.edit),
    }
    format_of(registry, found).check(found, known, lambda options: load_backend_file(registry, found, options))
