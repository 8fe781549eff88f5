"""Lowering to an older opset of the default ONNX domain, for tools that read nothing newer."""

from __future__ import annotations

import importlib

from dovetail.plugin import hookimpl

dovetail_api = 1

_PUBLIC = {
    **dict.fromkeys(("Lowered", "NotLowered", "lower"), "dovetail_lowering.lowering"),
    "can_lower": "dovetail_lowering.trial",
}
__all__ = sorted(_PUBLIC)


@hookimpl
def register(registry):
    """Register the pass of this plugin."""
    registry.pass_("lower-opset", "dovetail_lowering.lower_opset:LowerOpset")


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_lowering' has no attribute {name!r}")
