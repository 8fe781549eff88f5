"""Lowering to an older opset of the default ONNX domain, for tools that do not support newer ones."""

from __future__ import annotations

import importlib

_PUBLIC = {
    **dict.fromkeys(("Lowered", "NotLowered", "lower"), "dovetail_transforms.lowering.lowering"),
    "can_lower": "dovetail_transforms.lowering.lowering",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_transforms.lowering' has no attribute {name!r}")
