"""Builder functions for operators from files: `operators("acme").scaled_swish(builder, x, beta=2.0)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import load_plugins
from dovetail.text import did_you_mean

from dovetail_kernels.operator_files.entries import OperatorArgument, OperatorEntry, OperatorFile
from dovetail_kernels.operator_files.library import OperatorLibrary, defined, library_of
from dovetail_kernels.operator_files.reading import read_operators

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


class OperatorFunctions:
    """One function per operator of a domain; its parameters are the builder and those of the operator's signature.

    Args:
        domain: The domain.
        library: The library with its operators.
    """

    def __init__(self, domain: str, library: OperatorLibrary):
        self._domain = domain
        self._made = {
            name: _function(definition.entry, domain)
            for (own, name), definition in library.definitions.items()
            if own == domain
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._made:
            raise AttributeError(f"domain '{self._domain}' has no operator '{name}'{did_you_mean(name, self._made)}")
        return self._made[name]

    def __dir__(self) -> list[str]:
        return sorted(self._made)


def operators(domain: str, plugins: PluginSet | None = None) -> OperatorFunctions:
    """Return the builder functions for the operators of a domain.

    Args:
        domain: The domain of an operator file.
        plugins: The plugins with the files; all installed ones by default.

    Raises:
        DovetailError: No file defines operators of this domain, or one is invalid.
    """
    from dovetail.plugin import load_plugins

    plugins = plugins or load_plugins()
    plugins.prepare()
    library = library_of(plugins.registry)
    if domain not in library.versions:
        known = ", ".join(sorted(library.versions)) or "none"
        raise DovetailError(
            f"no file of operators has the domain '{domain}'{did_you_mean(domain, library.versions)}",
            f"installed: {known}; another one comes with the distribution that brings it",
        )
    return OperatorFunctions(domain, library)


def _function(entry: OperatorEntry, domain: str) -> Callable[..., Any]:
    signature = inspect.Signature([_parameter("builder"), *map(_parameter_of, _ordered(entry))])

    def build(*given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise UsageError(f"{domain}::{entry.name} {error}", f"its signature: {signature}") from None
        bound.apply_defaults()
        values = dict(bound.arguments)
        builder = values.pop("builder")
        inputs: list[Any] = []
        for arg in entry.inputs:
            inputs += values[arg.name] if arg.is_list else [values[arg.name]]
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = {arg.name: values[arg.name] for arg in entry.attributes}
        return builder.op(entry.name, inputs, attributes, outputs=len(entry.outputs), domain=domain)

    outputs = ", ".join(output.name for output in entry.outputs)
    build.__name__ = build.__qualname__ = entry.name
    vars(build)["__signature__"] = signature
    build.__doc__ = f"Append {domain}::{entry.name}, defined in {entry.where}, and give {outputs}."
    return build


def _ordered(entry: OperatorEntry) -> list[tuple[OperatorArgument, bool]]:
    """Order the arguments as Python requires, optional ones last; each with whether it is optional."""
    args = [(arg, arg.has_default or arg.name in entry.optional) for arg in entry.args]
    return sorted(args, key=lambda pair: pair[1])


def _parameter(name: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _parameter_of(arg: tuple[OperatorArgument, bool]) -> inspect.Parameter:
    argument, is_optional = arg
    return _parameter(argument.name, argument.default if is_optional else inspect.Parameter.empty)


def check_operators(file: str | Path) -> list[dict[str, str]]:
    """Check an operator file.

    Args:
        file: Its path. A plain list of entries, as in Paddle, is checked in the domain `pd_op`.

    Returns:
        For every operator its `name`, its `signature`, and as `executed` its execution: `composite`, `kernel` or
        `invoke`.

    Raises:
        DovetailError: The file cannot be read, names a module that is not of an installed plugin, or entries are
            invalid: one line per error.
    """
    found = read_operators(Path(file), "pd_op")
    _check_functions(found)
    if found.domain != "pd_op":
        defined(found)
    return [
        {"name": f"{found.domain}::{entry.name}", "signature": _signature(entry), "executed": _executed(entry)}
        for entry in (*found.entries.values(), *found.gradients.values())
    ]


def _check_functions(file: OperatorFile) -> None:
    """Check that the module that a file names belongs to an installed plugin.

    The file may come from anybody, and importing a module runs it.
    """
    if not file.functions:
        return
    plugins = {re.split("[.:]", record.target)[0] for record in load_plugins().plugins}
    if file.functions.partition(".")[0] not in plugins:
        raise DovetailError(
            f"{file.functions_at}: functions: {file.functions} is not part of an installed plugin, and is not imported",
            "if you trust the file, install its distribution with an entry point in the group 'dovetail'",
        )


def _signature(entry: OperatorEntry) -> str:
    args = ", ".join(map(_argument, entry.args))
    outputs = ", ".join(f"{output.type} {output.name}" for output in entry.outputs)
    return f"({args}) -> {outputs}"


def _argument(arg: OperatorArgument) -> str:
    return f"{arg.type} {arg.name}" + (f" = {arg.default!r}" if arg.has_default else "")


def _executed(entry: OperatorEntry) -> str:
    ways = {"composite": entry.body or entry.composite, "kernel": entry.kernel, "invoke": entry.invoke}
    return ", ".join(name for name, way in ways.items() if way)
