"""Dovetail cuts a model into the parts that each backend does best, joins them, and can say why.

    import dovetail
    compiled = dovetail.compile("model.onnx", ["cpu-bf16"], data="inputs.npz")
    print(compiled.summary())

Everything is imported when it is first used, so that importing this package costs next to nothing. Installed
distributions bring further functions, `dovetail.verify` say; see `dovetail.member_functions`.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_PUBLIC = {
    **dict.fromkeys(("backends", "compile", "load", "open", "plan"), "dovetail.api"),
    **dict.fromkeys(("Pass", "Pipeline", "Request", "Context"), "dovetail.passes"),
    "CompiledModel": "dovetail.compiled",
    **dict.fromkeys(
        ("DovetailError", "GoalError", "ResultError", "UsageError", "VerificationError"), "dovetail.errors"
    ),
    "Instrumentation": "dovetail.passes.instrumentation",
    "Model": "dovetail.ir.model",
    "hookimpl": "dovetail.plugin",
    "load_plugins": "dovetail.plugin",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    from dovetail.member_functions import member_function

    # Kept, so that only the first use looks at what is installed.
    globals()[name] = found = member_function(name)
    return found


def __dir__() -> list[str]:
    from dovetail.member_functions import member_function_names

    return sorted({*__all__, *member_function_names()})
