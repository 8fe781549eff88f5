"""Functions that installed distributions add to the package `dovetail`, as entry points of the group `dovetail.api`.

    [project.entry-points."dovetail.api"]
    verify = "dovetail_verify.functions:verify"

defines `dovetail.verify`. Names that core defines are never looked up here.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from dovetail.errors import DovetailError
from dovetail.installed import entry_points
from dovetail.plugin.loading.isolation import described, foreign_output
from dovetail.text import did_you_mean

_INSTALL_HINTS = {
    "dovetail-adapters": ("InferenceSession",),
    "dovetail-builder": ("Builder", "autocast"),
    "dovetail-commands": ("backends", "compile", "compile_folder", "explain", "opt", "passes", "plan"),
    "dovetail-kernels": ("check_operators", "operators"),
    "dovetail-runtime": ("Tool", "input_data", "run", "trace"),
    "dovetail-schemas": ("check",),
    "dovetail-testing": ("testing",),
    "dovetail-placement": ("regions",),
    "dovetail-verify": ("bisect", "bisect_passes", "layer_errors", "program_errors", "reduce", "verify"),
}


def to_install(name: str) -> str:
    """Return the command that installs `name`: `pip install dovetail-verify`; empty if no distribution has it."""
    return next((f"pip install {distribution}" for distribution, names in _INSTALL_HINTS.items() if name in names), "")


GROUP = "dovetail.api"


class NotInstalledError(DovetailError, AttributeError):
    """An API function was used whose distribution, a part of Dovetail, is not installed."""


def member_function_names() -> list[str]:
    """Return the names of the functions that installed distributions add."""
    return sorted({point.name for point, _ in entry_points(GROUP)})


def api_extension(name: str) -> Any:
    """Return the function (or other object) that a distribution adds as `dovetail.NAME`.

    Raises:
        AttributeError: No distribution adds it.
        NotInstalledError: A distribution of Dovetail adds it, but is not installed.
        DovetailError: Two distributions add it, or the one that does cannot be imported.
    """
    # Python itself looks up the names of a package's modules, and many names that begin with an underscore.
    ours = name.startswith("_") or not name.isidentifier() or importlib.util.find_spec(f"dovetail.{name}") is not None
    if ours:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    points = entry_points(GROUP)
    found = [(point, owner.name) for point, owner in points if point.name == name]
    if not found and (hint := to_install(name)):
        raise NotInstalledError(f"the distribution that brings dovetail.{name} is not installed", hint)
    if not found:
        raise AttributeError(
            f"module 'dovetail' has no attribute {name!r}{did_you_mean(name, [point.name for point, _ in points])}; "
            f"distributions with entry points in the group '{GROUP}' bring functions"
        )
    if len(found) > 1:
        owners = " and by ".join(f"{owner} ({point.value})" for point, owner in found)
        raise DovetailError(f"dovetail.{name} is brought by {owners}", "uninstall one of them")
    ((point, owner),) = found
    try:
        with foreign_output(f"dovetail.{name} of {owner}"):
            return point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise DovetailError(
            f"dovetail.{name} of {owner} cannot be loaded from {point.value}: {described(error)}",
            f"repair or reinstall {owner}",
        ) from error
