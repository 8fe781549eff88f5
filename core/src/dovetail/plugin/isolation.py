"""Calling code of plugins: what it prints stays out of standard output, and nothing that it raises goes unnamed."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator

__all__ = ["PluginWarning", "described", "foreign_output"]


class PluginWarning(RuntimeWarning):
    """A plugin misbehaves."""


@contextlib.contextmanager
def foreign_output(owner: str) -> Iterator[None]:
    """Keep what a plugin prints out of standard output, which belongs to the command and may be read by a program.

    The text goes to standard error, under a warning that names the plugin.

    Args:
        owner: The plugin or the distribution, for the warning.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        if text := printed.getvalue():
            warnings.warn(f"{owner} prints to standard output; shown here instead", PluginWarning, stacklevel=4)
            sys.stderr.write(text if text.endswith("\n") else text + "\n")


def described(error: BaseException) -> str:
    """The type and the text of an exception: `KeyError: 'x'`."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
