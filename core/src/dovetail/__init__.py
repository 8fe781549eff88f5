"""Dovetail cuts a model into the parts that each backend does best, joins them, and can say why.

    import dovetail
    compiled = dovetail.compile("model.onnx", ["cpu-bf16"], data="inputs.npz")
    print(compiled.summary())

Everything is imported when it is first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_PUBLIC = {
    **dict.fromkeys(("backends", "bisect", "compile", "explain", "load", "open", "plan", "verify"), "dovetail.api"),
    **dict.fromkeys(("Builder", "autocast"), "dovetail.building"),
    **dict.fromkeys(("Pass", "Pipeline", "Request", "Context"), "dovetail.passes"),
    "CompiledModel": "dovetail.compiled",
    **dict.fromkeys(("DovetailError", "GoalError", "UsageError", "VerificationError"), "dovetail.errors"),
    "Instrumentation": "dovetail.passes.instrumentation",
    "Model": "dovetail.ir.model",
    "hookimpl": "dovetail.plugin",
    "load_plugins": "dovetail.plugin",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
