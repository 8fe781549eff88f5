"""Functions that installed distributions add to the package `dovetail`, as entry points of the group `dovetail.api`.

    [project.entry-points."dovetail.api"]
    verify = "dovetail_verify.functions:verify"

makes `dovetail.verify`. What core has itself is never looked up here.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import Any

from dovetail.errors import DovetailError
from dovetail.plugin.isolation import described, foreign_output
from dovetail.text import did_you_mean

_INSTALL_HINTS = {
    "dovetail-builder": ("Builder", "autocast"),
    "dovetail-commands": ("compile", "explain", "opt", "plan"),
    "dovetail-precision": ("bench",),
    "dovetail-runtime": ("input_data", "run", "trace"),
    "dovetail-schemas": ("check", "check_operators", "operators"),
    "dovetail-testing": ("testing",),
    "dovetail-transforms": ("regions",),
    "dovetail-verify": ("bisect", "layer_errors", "verify"),
}


def to_install(name: str) -> str:
    """Say how to get the command or function `name`: `pip install dovetail-verify`; empty if no distribution has it."""
    return next((f"pip install {distribution}" for distribution, names in _INSTALL_HINTS.items() if name in names), "")


GROUP = "dovetail.api"


class NotInstalledError(DovetailError, AttributeError):
    """Somebody asks for a function of a distribution of the house that is not installed."""


def member_function_names() -> list[str]:
    """The names of the functions that installed distributions bring."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


def api_extension(name: str) -> Any:
    """The function, or whatever else, that a distribution brings as `dovetail.NAME`.

    Raises:
        AttributeError: None brings it.
        NotInstalledError: The distribution of the house that brings it is not installed.
        DovetailError: Two distributions do, or the one that does cannot be imported.
    """
    # Python itself asks a package for the names of its modules, and for many that begin with an underscore.
    ours = name.startswith("_") or not name.isidentifier() or importlib.util.find_spec(f"dovetail.{name}") is not None
    if ours:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    points = list(metadata.entry_points(group=GROUP))
    # A distribution that is found twice on the path, as editable installs may be, is one.
    found = list({(_owner(point), point.value): point for point in points if point.name == name}.values())
    if not found and (hint := to_install(name)):
        raise NotInstalledError(f"the distribution that brings dovetail.{name} is not installed", hint)
    if not found:
        raise AttributeError(
            f"module 'dovetail' has no attribute {name!r}{did_you_mean(name, [point.name for point in points])}; "
            f"distributions with entry points in the group '{GROUP}' bring functions"
        )
    if len(found) > 1:
        owners = " and by ".join(f"{_owner(point)} ({point.value})" for point in found)
        raise DovetailError(f"dovetail.{name} is brought by {owners}", "uninstall one of them")
    (point,) = found
    try:
        with foreign_output(f"dovetail.{name} of {_owner(point)}"):
            return point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise DovetailError(
            f"dovetail.{name} of {_owner(point)} cannot be loaded from {point.value}: {described(error)}",
            f"repair or reinstall {_owner(point)}",
        ) from error


def _owner(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
