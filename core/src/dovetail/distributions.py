"""What the distributions of the house bring to the program and to the package, so that messages say what to install."""

from __future__ import annotations

_INSTALL_HINTS = {
    "dovetail-builder": ("Builder", "autocast"),
    "dovetail-commands": ("compile", "opt", "plan"),
    "dovetail-explain": ("explain",),
    "dovetail-operators": ("check_operators", "operators"),
    "dovetail-precision": ("bench",),
    "dovetail-regions": ("regions",),
    "dovetail-runtime": ("input_data", "run", "trace"),
    "dovetail-schemas": ("check",),
    "dovetail-testing": ("testing",),
    "dovetail-verify": ("bisect", "layer_errors", "verify"),
}


def to_install(name: str) -> str:
    """Say how to get the command or function `name`: `pip install dovetail-verify`; empty if no distribution has it."""
    return next((f"pip install {distribution}" for distribution, names in _INSTALL_HINTS.items() if name in names), "")
