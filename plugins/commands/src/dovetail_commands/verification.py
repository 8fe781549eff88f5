"""What commands print of a comparison of a result with its original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.cli.common import note

if TYPE_CHECKING:
    from dovetail.plugin import Verification

__all__ = ["warn"]


def warn(verification: Verification) -> None:
    """Print what is alarming about a comparison on standard error, with what to do about it."""
    note(*(f"warning: {text}" for text in verification.warnings))
    if verification.warnings and verification.advice:
        note(f"  {verification.advice}")
