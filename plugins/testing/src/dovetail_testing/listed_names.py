"""Whether the operators and tests that lists name exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dovetail_schemas.errors import near_miss
from dovetail_schemas.operator_files.library import library_of
from dovetail_schemas.operators import operator_names
from dovetail_schemas.yaml_source import Scalar

from dovetail_testing.case import SUITES

if TYPE_CHECKING:
    from dovetail.plugin.registry import Registry


def check_operators(names: Iterable[Scalar], registry: Registry) -> None:
    """Refuse operators that neither onnx nor an installed file of operators defines.

    Raises:
        DovetailError: There is one; or a file of operators is at fault.
    """
    library = library_of(registry)
    for name in names:
        domain, _, operator = name.raw.rpartition("::")
        own = {other for of, other in library.definitions if of == domain}
        known = own or operator_names(domain)
        if not known:
            problem = f"unknown domain '{domain}'{near_miss(domain, library.versions)}"
            raise name.error(f"{problem}; no installed file of operators has it")
        if operator not in known:
            raise name.error(f"unknown operator '{name.raw}'{near_miss(operator, known)}")


def unknown_tests(names: Iterable[Scalar], cases: Collection[str], suites: Collection[str], made_for: str) -> list[str]:
    """Warnings about tests that the installed onnx does not have, of lists that were made for another version of it.

    Args:
        names: What is listed, `*` standing for any part.
        cases: The names of all cases of the suites.
        suites: The suites; a name that may belong to another one is not looked for.
        made_for: The version of onnx that the lists were made for; empty if they do not say.

    Raises:
        SchemaError: A test does not exist.
    """
    from onnx import __version__

    if set(suites) != set(SUITES):
        # Of the node tests alone it is known how they are called.
        names = [name for name in names if name.raw.startswith("test_") and "nodes" in suites]
    other = made_for and __version__.split(".")[:2] != made_for.split(".")[:2]
    warnings = []
    for name in names:
        wild = "*" in name.raw
        if any(fnmatchcase(case, name.raw) for case in cases) if wild else name.raw in cases:
            continue
        if not other:
            raise name.error(f"unknown test '{name.raw}'{near_miss(name.raw, cases)}")
        warnings.append(f"{name.where}: onnx {__version__} has no test '{name.raw}', onnx {made_for} has")
    return warnings
