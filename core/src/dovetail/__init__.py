"""Dovetail cuts a model into the parts that each backend does best, joins them, and can say why.

    import dovetail
    compiled = dovetail.compile("model.onnx", ["cpu-bf16"], data="inputs.npz")
    print(compiled.summary())

Everything is imported when it is first used, so that importing this package costs next to nothing. Installed
distributions bring further functions, `dovetail.verify` say; see `dovetail.member_functions`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.api import backends as backends, compile as compile, load as load, open as open, plan as plan
    from dovetail.compiled import CompiledModel as CompiledModel
    from dovetail.errors import (
        DovetailError as DovetailError,
        GoalError as GoalError,
        ResultError as ResultError,
        UsageError as UsageError,
        VerificationError as VerificationError,
    )
    from dovetail.ir.model import Model as Model
    from dovetail.passes import Context as Context, Pass as Pass, Pipeline as Pipeline, Request as Request
    from dovetail.passes.instrumentation import Instrumentation as Instrumentation
    from dovetail.plugin import hookimpl as hookimpl, load_plugins as load_plugins

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


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    from dovetail.member_functions import member_function

    # Kept, so that only the first use looks at what is installed.
    globals()[name] = found = member_function(name)
    return found


def __dir__() -> list[str]:
    from dovetail.member_functions import member_function_names

    return sorted({*__all__, *member_function_names()})
