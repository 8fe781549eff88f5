"""Tuning: the fastest plan within an accuracy goal, measured on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1
dovetail_kinds = {"tuning_policy": "code"}


@hookimpl
def register(registry: Registry) -> None:
    """Register the commands `tune` and `profile`, and what a tuning tries."""
    registry.command(
        "tune",
        "dovetail_tune.command:TUNE",
        "compile",
        "Find the fastest plan that meets an accuracy goal, by measuring.",
    )
    registry.command(
        "profile",
        "dovetail_tune.profile_command:PROFILE",
        "measure",
        "Measure the time of operators on an engine of this machine.",
    )
    registry.tuning_policy("defaults", "dovetail_tune.policies:Defaults")
    registry.tuning_policy("raised", "dovetail_tune.policies:Raised")
    registry.tuning_policy("options", "dovetail_tune.policies:Options")
    registry.tuning_policy("raised-options", "dovetail_tune.policies:RaisedOptions")
    registry.tuning_policy("combined", "dovetail_tune.policies:Combined")
    registry.tuning_policy("mixed", "dovetail_tune.policies:Mixed")
