"""Core names no operator, and imports nothing heavy before it is used."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import onnx.defs
import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src" / "dovetail"
FILES = sorted(CORE.rglob("*.py"))
OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(body):
    """The string statements in a body: docstrings, and descriptions of the assignment before them."""
    return [line.value for line in body if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)]


def literals(path):
    """The string literals of a file, docstrings exempt, each with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    exempt = {id(text) for node in ast.walk(tree) if isinstance(node, DEFINITIONS) for text in texts(node.body)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exempt:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CORE)) for path in FILES])
def test_no_string_names_an_operator(path):
    """Not even inside of a longer text: what an operator does is known to front ends, schemas and passes."""
    named = {
        (line, word) for line, text in literals(path) for word in re.findall(r"[A-Za-z0-9]+", text) if word in OPERATORS
    }
    assert named == set()


def test_the_rule_finds_an_operator(tmp_path):
    file = tmp_path / "m.py"
    file.write_text('"""Docs may say Conv."""\nX = 1\n"""So may these: Conv."""\nY = {"If": f"a Relu of {X}"}\n')
    assert [text for _, text in literals(file)] == ["If", "a Relu of "]


def test_importing_core_imports_nothing_heavy():
    heavy = {"onnx", "onnx_ir", "numpy", "sympy", "onnxruntime"}
    code = f"import sys, dovetail, dovetail.plugin.loading.frontends; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PUBLIC = ("dovetail", *(f"dovetail.{name}" for name in (
    "api", "api_extensions", "cli", "compiler", "errors", "files", "installed", "ir", "lazy_imports", "passes",
    "planning", "plugin", "plugin.loading", "text",
)))  # fmt: skip


@pytest.mark.parametrize("folder", ["schemas/src", "plugins/*/src", "backends/*/src", "tests/example_*/src"])
def test_distributions_import_core_by_its_public_packages(folder):
    """What a package lists in its `__init__.pyi` is public; everything below it may move at any time."""
    files = [file for root in ROOT.glob(folder) for file in root.rglob("*.py")]
    imported = {
        (str(file.relative_to(ROOT)), node.module)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dovetail"
    }
    assert files and [found for found in sorted(imported) if found[1] not in PUBLIC] == []
