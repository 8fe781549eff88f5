"""Modules do not import each other in circles: not at their top, and not inside of functions either."""

import ast
import importlib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dovetail.lazy_imports import stub_imports

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for pattern in ("*/src", "*/*/src") for path in ROOT.glob(pattern) if "tests" not in path.parts)


def modules():
    """The files of all members by the names under which they are imported."""
    found = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class Imports(ast.NodeVisitor):
    """The modules that a file imports when it runs, at its top and inside of functions."""

    def __init__(self, known):
        self.known = known
        self.found = set()

    def visit_If(self, node):
        if ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node):
        self.found |= {alias.name for alias in node.names} & self.known

    def visit_ImportFrom(self, node):
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            # Packages import what they offer when somebody asks for it.
            lazy = lazy_names(node.module) if node.module in self.known else {}
            name = whole if whole in self.known else lazy.get(alias.name, node.module)
            self.found |= {name} & self.known


@cache
def lazy_names(module):
    """The names that a package imports on first use, each with its module."""
    try:
        package = importlib.import_module(module)
    except ModuleNotFoundError:  # an optional library is not installed
        return {}
    stub = Path(package.__file__).with_suffix(".pyi")
    return stub_imports(stub) if stub.is_file() else vars(package).get("_PUBLIC", {})


def imports_of(path, known):
    visitor = Imports(known)
    visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
    return visitor.found


def test_the_members_are_found():
    assert {"dovetail.api", "dovetail_schemas", "dovetail_host.reference"} <= modules().keys()


def test_no_modules_import_each_other_in_a_circle():
    found = modules()
    graph = {name: imports_of(path, found.keys()) - {name} for name, path in found.items()}
    assert " <- ".join(circle_in(graph)) == ""


def circle_in(graph):
    """The names of a circle of imports; none if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_a_circle_is_found():
    assert set(circle_in({"a": {"b"}, "b": {"a"}, "c": set()})) == {"a", "b"}
