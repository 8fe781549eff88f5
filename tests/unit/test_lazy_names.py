"""Packages that import names on first use list the same names for type checkers and editors."""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGES = ("dovetail", "dovetail.ir", "dovetail.passes", "dovetail.plugin")


def typed_imports(package):
    """The names that `package` imports under `if TYPE_CHECKING:` to export them, each with its module."""
    tree = ast.parse(Path(package.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: node.module for node in imports for alias in node.names if alias.name == alias.asname}


@pytest.mark.parametrize("name", PACKAGES)
def test_typed_imports_are_those_of_the_lazy_table(name):
    package = importlib.import_module(name)
    assert typed_imports(package) == package._PUBLIC
    assert all(hasattr(package, public) for public in package._PUBLIC)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_type_checker_reads_the_types_of_an_installed_package(name):
    assert (Path(importlib.import_module(name.partition(".")[0]).__file__).parent / "py.typed").is_file()
