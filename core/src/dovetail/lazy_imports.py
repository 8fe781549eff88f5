"""Lazy package imports: names listed in a package's stub file `__init__.pyi` are imported on first use."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)
_EXPORTED = re.compile(r"(\w+) as \1\b")


def attach_stub(
    package: str, file: str, renamed: Mapping[str, tuple[str, str]] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, so that type checkers and Python read one list.

    Args:
        package: The package's `__name__`.
        file: Its `__file__`; the stub is in the same folder.
        renamed: Names that still work, with a warning: each with its new name, and the version that removes it.
    """
    old = dict(renamed or {})
    public = stub_imports(Path(file).with_suffix(".pyi"))
    names = sorted(public)

    def load(name: str) -> object:
        if name in public:
            return getattr(importlib.import_module(public[name]), name)
        if name in old:
            new, until = old[name]
            warn_of_old_name(f"{package}.{name}", f"{package}.{new}", until)
            return load(new)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted({*names, *vars(sys.modules[package])}), names


def warn_of_old_name(old: str, new: str, until: str) -> None:
    """Warn that an old name is used, which works until a version."""
    warnings.warn(f"{old} is called {new} now; the old name works until {until}", FutureWarning, stacklevel=3)


def stub_imports(stub: Path) -> dict[str, str]:
    """Return the names that a stub exports as `from module import name as name`, each with its module."""
    imports = _IMPORT.findall(stub.read_text(encoding="utf-8"))
    return {name: module for module, names in imports for name in _EXPORTED.findall(names)}
