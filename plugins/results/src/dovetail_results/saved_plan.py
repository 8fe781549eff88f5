"""Saved plans that are parsed on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.planning.plan import Plan

__all__ = ["SavedPlan"]


class SavedPlan(Plan):
    """A plan that is parsed on first access: for a large model that takes a second."""

    def __init__(self, load: Callable[[], Plan]):
        self.__dict__["_load"] = load

    def __getattr__(self, name: str) -> Any:
        load = self.__dict__.get("_load")
        if load is None or name.startswith("__"):
            raise AttributeError(name)
        self.__dict__.update(vars(load()))
        self.__dict__.pop("_load", None)
        return getattr(self, name)
