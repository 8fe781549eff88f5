"""Rewrites: local changes of the graph, each made of a pattern, a replacement and a check, for passes of any plugin.

Names are imported on first use.
"""

from __future__ import annotations

import importlib

_PUBLIC = {
    **dict.fromkeys(("Outcome", "Rewrite", "rewrite_model", "rewrite_node"), "dovetail_transforms.rewriting.rewriting"),
    "Replacement": "dovetail_transforms.rewriting.rewriting",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_transforms.rewriting' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
