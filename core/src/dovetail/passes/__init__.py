"""Passes: the base class, pipelines and their text, and the manager. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.passes.base import Pass as Pass, STAGES as STAGES, load_pass as load_pass
    from dovetail.passes.composition import compose as compose
    from dovetail.passes.context import Analysis as Analysis, Context as Context
    from dovetail.passes.instrumentation import Instrumentation as Instrumentation
    from dovetail.passes.manager import Manager as Manager
    from dovetail.passes.pipeline import Pipeline as Pipeline
    from dovetail.passes.request import BackendChoice as BackendChoice, PinOrigin as PinOrigin, Request as Request
    from dovetail.passes.result import PassResult as PassResult, Result as Result
    from dovetail.passes.steps import Fixpoint as Fixpoint, Nested as Nested

_PUBLIC = {
    **dict.fromkeys(("STAGES", "Pass", "load_pass"), "dovetail.passes.base"),
    "compose": "dovetail.passes.composition",
    **dict.fromkeys(("Analysis", "Context"), "dovetail.passes.context"),
    "Instrumentation": "dovetail.passes.instrumentation",
    "Manager": "dovetail.passes.manager",
    **dict.fromkeys(("Fixpoint", "Nested"), "dovetail.passes.steps"),
    "Pipeline": "dovetail.passes.pipeline",
    **dict.fromkeys(("BackendChoice", "PinOrigin", "Request"), "dovetail.passes.request"),
    **dict.fromkeys(("PassResult", "Result"), "dovetail.passes.result"),
}
__all__ = sorted(_PUBLIC)


if not TYPE_CHECKING:  # a type checker reports names that are not imported above

    def __getattr__(name: str) -> object:
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'dovetail.passes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
