"""What the distributions of the house bring to the program and to the package, so that messages say what to install."""

from __future__ import annotations

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
