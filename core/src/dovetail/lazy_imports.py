"""Lazy package imports: names listed in a package's stub file `__init__.pyi` are imported on first use."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)
_EXPORTED = re.compile(r"(\w+) as \1\b")


def attach_stub(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, so that type checkers and Python read one list.

    Args:
        package: The package's `__name__`.
        file: Its `__file__`; the stub is in the same folder.
    """
    public = stub_imports(Path(file).with_suffix(".pyi"))
    names = sorted(public)

    def load(name: str) -> object:
        if name in public:
            return getattr(importlib.import_module(public[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted({*names, *vars(sys.modules[package])}), names


def stub_imports(stub: Path) -> dict[str, str]:
    """Return the names that a stub exports as `from module import name as name`, each with its module."""
    imports = _IMPORT.findall(stub.read_text(encoding="utf-8"))
    return {name: module for module, names in imports for name in _EXPORTED.findall(names)}
