"""The graph: editing, typing and verifying models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.ir.editing import insert_on_edge as insert_on_edge, replace_uses_except as replace_uses_except
    from dovetail.ir.model import Model as Model
    from dovetail.ir.types import promote as promote
    from dovetail.ir.verifier import verify_model as verify_model

_PUBLIC = {
    "Model": "dovetail.ir.model",
    "verify_model": "dovetail.ir.verifier",
    "insert_on_edge": "dovetail.ir.editing",
    "replace_uses_except": "dovetail.ir.editing",
    "promote": "dovetail.ir.types",
}
__all__ = list(_PUBLIC)


if not TYPE_CHECKING:  # a type checker reports names that are not imported above

    def __getattr__(name: str) -> object:
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'dovetail.ir' has no attribute {name!r}")
