"""Contracts are base classes with defaults: nobody asks an object whether it has an attribute that a contract names."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "core", ROOT / "schemas", *(ROOT / "plugins").iterdir(), *(ROOT / "backends").iterdir()]

ALLOWED = {
    "the operating system or the installed version of a library may lack it": {
        "CSafeLoader", "ComputeCapability", "MADV_DONTNEED", "O_BINARY", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK",
        "STRONGLY_TYPED", "getuid", "isHomogeneous", "is_homogeneous", "killpg",
    },
    "arrays of any library, lists and numbers are data": {
        "__array__", "__dlpack__", "dtype", "nbytes", "ndim", "shape", "tobytes", "files",
    },
    "modules, classes and functions of plugins, before anything is known of them": {
        "__name__", "__path__", "dovetail_api", "dovetail_kinds", "dovetail_spec",
    },
    "exceptions of Python and of libraries": {"lineno", "message", "problem", "problem_mark", "strerror"},
    "an object of onnx, onnx_ir, OpenVINO, PyYAML or argparse, whose classes differ in it": {
        "anchor", "base_dir", "chunks", "command", "default_value", "graph", "hb_yaml",
        "name", "numpy", "parent", "path", "plan", "string_data", "type_str", "value", "values",
    },
    "an attribute of the object itself, which `__del__` may meet half made": {"_memory", "_stream"},
}  # fmt: skip


def asked(text):
    """The attributes that a source asks for by a literal name, each with its line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name, node.lineno


def test_a_question_is_found():
    assert list(asked('x = getattr(a, "b", 1)\ny = hasattr(a, "c")\nz = getattr(a, n)')) == [("b", 1), ("c", 2)]


@pytest.fixture(scope="module")
def questions():
    """Path, line and attribute of every question in the sources."""
    paths = [path for source in SOURCES for path in source.rglob("src/**/*.py")]
    return [(path, line, name) for path in paths for name, line in asked(path.read_text(encoding="utf-8"))]


def test_nothing_asks_whether_a_contract_is_kept(questions):
    allowed = set().union(*ALLOWED.values())
    found = [f"{path.relative_to(ROOT)}:{line}: {name}" for path, line, name in questions if name not in allowed]
    assert not found, "declare it on the base class with a default, or say in ALLOWED why it cannot be"


def test_every_exception_is_used(questions):
    assert set().union(*ALLOWED.values()) <= {name for *_, name in questions}
