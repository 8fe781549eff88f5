"""Deferred imports: modules that the program's libraries import, and that few commands use."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from typing import Any

# onnx-ir imports sympy, a third of the modules of a command, and needs it only to compute with symbolic extents.
_DEFERRED = frozenset({"sympy", "onnx_ir._symbolic_shapes"})


class _Deferring:
    """Finds the deferred modules as Python does, but has them executed when one of their attributes is first read."""

    def find_spec(self, fullname: str, path: Any, target: object = None) -> ModuleSpec | None:
        """Return the specification of a deferred module; None for all others, which Python's finders find."""
        spec = PathFinder.find_spec(fullname, path) if fullname in _DEFERRED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def defer_imports() -> None:
    """Let this process execute the deferred modules on first use.

    Like the settings of the garbage collector, this is a choice for the program's own process, which no library may
    make.
    """
    sys.meta_path.insert(0, _Deferring())
