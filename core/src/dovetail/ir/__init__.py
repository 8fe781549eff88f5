"""The graph: editing, typing and verifying models."""

from __future__ import annotations

import importlib

_PUBLIC = {
    "Model": "dovetail.ir.model",
    "verify_model": "dovetail.ir.verifier",
    "insert_on_edge": "dovetail.ir.editing",
    "replace_uses_except": "dovetail.ir.editing",
    "promote": "dovetail.ir.types",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail.ir' has no attribute {name!r}")
