"""Passes: the base class, pipelines and their text, and the manager. Names are imported on first use."""

from __future__ import annotations

import importlib

_PUBLIC = {
    **dict.fromkeys(("STAGES", "Pass", "load_pass"), "dovetail.passes.base"),
    "compose": "dovetail.passes.composition",
    **dict.fromkeys(("Analysis", "Context"), "dovetail.passes.context"),
    "Instrumentation": "dovetail.passes.instrumentation",
    "Manager": "dovetail.passes.manager",
    **dict.fromkeys(("Fixpoint", "Nested"), "dovetail.passes.steps"),
    "Pipeline": "dovetail.passes.pipeline",
    **dict.fromkeys(("BackendChoice", "Request"), "dovetail.passes.request"),
    **dict.fromkeys(("PassResult", "Result"), "dovetail.passes.result"),
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail.passes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
