"""The library of all operators that plugins define, with their schemas and decompositions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

from dovetail_kernels.operator_files.bodies import flattened, function_of
from dovetail_kernels.operator_files.entries import OperatorArgument, OperatorEntry, OperatorFile
from dovetail_kernels.operator_files.inference import inference_of, inference_of_body
from dovetail_kernels.operator_files.reading import read_operators
from dovetail_kernels.operator_files.schemas import schema_of

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import Registry
    from dovetail.plugin.loading import Registration
    from dovetail_schemas import OperatorFacts


Infer = Callable[[Any], None]
_WAY_OUT = "uninstall one of them, or leave one out with --no-plugin"


@dataclass(frozen=True)
class Definition:
    """One entry with everything derived from it.

    Attributes:
        entry: The entry.
        owner: The distribution that provides its file.
        schema: Its ONNX schema.
        function: Its decomposition, or None.
        infer: Its shape inference in onnx; None if its file does not describe its outputs.
    """

    entry: OperatorEntry
    owner: str
    schema: onnx.defs.OpSchema
    function: onnx.FunctionProto | None
    infer: Infer | None

    def in_domain(self, domain: str, more: tuple[OperatorArgument, ...]) -> onnx.defs.OpSchema:
        """Return the schema of the same operator in another domain, with further attributes."""
        entry = replace(self.entry, args=(*self.entry.inputs, *more, *self.entry.attributes))
        return _with_inference(schema_of(entry, domain, 1), self.infer)


@dataclass(frozen=True, eq=False)
class OperatorLibrary:
    """Definitions by domain and name.

    Attributes:
        definitions: The definitions.
        versions: The version of every domain.
        facts: Facts about the operators, one object per file that states some.
    """

    definitions: dict[tuple[str, str], Definition] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    facts: list[OperatorFacts] = field(default_factory=list)

    def enter(self, file: OperatorFile, owner: str) -> None:
        """Add the operators of a file.

        Raises:
            DovetailError: Another distribution defines one of them, or an entry is invalid.
        """
        made = defined(file)
        if file.facts is not None:
            self.facts.append(file.facts)
        self.versions[file.domain] = max(file.version, self.versions.get(file.domain, 1))
        for entry, schema, function, infer in made:
            key = file.domain, entry.name
            other = self.definitions.get(key)
            if other is not None:
                raise DovetailError(
                    f"operator '{file.domain}::{entry.name}' is defined by {other.owner} ({other.entry.where}) and by "
                    f"{owner} ({entry.where})",
                    _WAY_OUT,
                )
            self.definitions[key] = Definition(entry, owner, schema, function, infer)

    def get(self, domain: str, name: str) -> Definition | None:
        """Return the definition of an operator; None if no file defines it."""
        return self.definitions.get((domain, name))


def defined(
    file: OperatorFile,
) -> list[tuple[OperatorEntry, onnx.defs.OpSchema, onnx.FunctionProto | None, Infer | None]]:
    """Build schema, decomposition and inference of every entry of a file.

    Raises:
        DovetailError: An entry is invalid; all errors are listed, one line each.
    """
    made = []
    problems: list[str] = []
    functions = _functions(file, problems)
    for entry in file.entries.values():
        lists = [arg.name for arg in entry.inputs[:-1] if arg.is_list]
        if lists:
            problems.append(
                f"{entry.where}: '{entry.name}': only the last input may be a list, and '{lists[0]}' is one"
            )
            continue
        function = functions.get((file.domain, entry.name))
        if entry.body and function is None:
            continue
        try:
            infer = inference_of(entry, file) or (inference_of_body(entry, function) if function else None)
        except ValueError as error:
            problems.append(f"{entry.where}: '{entry.name}': {error}")
            continue
        made.append((entry, _with_inference(schema_of(entry, file.domain, file.version), infer), function, infer))
    if problems:
        raise DovetailError("\n  ".join(problems), "correct the file; every line above names a place in it")
    return made


def _with_inference(schema: onnx.defs.OpSchema, infer: Infer | None) -> onnx.defs.OpSchema:
    if infer is not None:
        schema.set_type_and_shape_inference_function(infer)
    return schema


def _functions(file: OperatorFile, problems: list[str]) -> dict[tuple[str, str], onnx.FunctionProto]:
    """Build the decompositions of a file, with calls between them inlined."""
    found: dict[tuple[str, str], onnx.FunctionProto] = {}
    for entry in file.entries.values():
        if entry.body:
            try:
                found[file.domain, entry.name] = function_of(entry, file)
            except ValueError as error:
                problems.append(f"{entry.where}: '{entry.name}': {error}")
    flat: dict[tuple[str, str], onnx.FunctionProto] = {}
    for key, function in found.items():
        try:
            flat[key] = flattened(function, found)
        except ValueError as error:
            entry = file.entries[key[1]]
            problems.append(f"{entry.where}: '{entry.name}': {error}")
    return flat


def library_of(registry: Registry) -> OperatorLibrary:
    """Return the library of all operators in a registry.

    Raises:
        DovetailError: Two distributions define the same operator.
    """
    return _library(tuple(registry.table("operators").entries), UncomparedRegistry(registry))


class UncomparedRegistry:
    """A registry inside a cache key; all compare equal, because the registered entries already form the key."""

    def __init__(self, registry: Registry):
        self.registry = registry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UncomparedRegistry)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=8)
def _library(entries: tuple[Registration, ...], ignored: UncomparedRegistry) -> OperatorLibrary:
    library, table = OperatorLibrary(), ignored.registry.table("operators")
    for name, file in table.usable(lambda name: read_operators(table[name], name)).items():
        library.enter(file, table.entry(name).owner)
    return library
