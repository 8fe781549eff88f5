"""Saved plans that are parsed on first access."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dovetail.planning.plan import Plan


class SavedPlan(Plan):
    """A plan that is parsed on first access: for a large model that takes a second.

    Several threads may look at once: one of them reads the plan, and all see the same one.
    """

    def __init__(self, load: Callable[[], Plan]):
        self.__dict__.update(_load=load, _loading=threading.Lock())

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__
        if name.startswith("__") or "_loading" not in held or name in ("_load", "_loading"):
            raise AttributeError(name)
        with held["_loading"]:
            load = held.get("_load")
            if load is not None:
                held.update(vars(load()))
                held["_load"] = None
        if name not in held:
            raise AttributeError(name)
        return held[name]
