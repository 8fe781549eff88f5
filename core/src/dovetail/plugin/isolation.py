"""Calling code of plugins: what it prints stays out of standard output, and nothing that it raises goes unnamed."""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail.plugin.output import captured


class PluginWarning(RuntimeWarning):
    """A plugin misbehaves."""


@contextlib.contextmanager
def foreign_output(owner: str) -> Iterator[None]:
    """Keep what a plugin prints out of standard output, which belongs to the command and may be read by a program.

    The text goes to standard error, under a warning that names the plugin. What other threads print meanwhile, and what
    the user's own functions print (`own_output`), goes where it always goes.

    Args:
        owner: The plugin or the distribution, for the warning.
    """
    with captured() as printed:
        try:
            yield
        finally:
            if text := printed.getvalue():
                warnings.warn(f"{owner} prints to standard output; shown here instead", PluginWarning, stacklevel=4)
                sys.stderr.write(text if text.endswith("\n") else text + "\n")


@contextlib.contextmanager
def calling(who: str) -> Iterator[None]:
    """Call foreign code: what it prints goes to standard error, and whatever it raises is an error that names it.

    Args:
        who: The thing with its distribution: `edit 'unit-conv' of dovetail-acme`.

    Raises:
        DovetailError: The block raised it, or something else, SystemExit included.
    """
    with named_errors(who), foreign_output(who):
        yield


@contextlib.contextmanager
def named_errors(who: str) -> Iterator[None]:
    """Call foreign code that may run in several threads at once, so that what it prints stays as it is; see `calling`.

    Raises:
        DovetailError: The block raised it, or something else, SystemExit included.
    """
    try:
        yield
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: foreign code must not end the program silently
        hint = "repair it, or leave its distribution out with --no-plugin; --debug shows where it failed"
        raise DovetailError(f"{who} failed: {described(error)}", hint) from error


def described(error: BaseException) -> str:
    """The type and the text of an exception with the place in foreign code: `KeyError: 'x' (acme/files.py:20)`.

    Of an exception that was raised for another, both.
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    if first is not error:
        return f"{text.splitlines()[0][:200]} (caused by {described(first)})"
    place = _place_of(error)
    return f"{text} ({place})" if place else text


def _place_of(error: BaseException) -> str:
    """File and line of the innermost frame in the package that was called; empty if none was.

    The first frames are those of the caller. The innermost frame of all may be in a library that the package uses.
    """
    # The block of a context manager stands between the caller and itself.
    own, frames = (__name__, "dovetail.plugin.options", "contextlib"), []
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_globals.get("__name__", "")
        if name not in own:
            frames.append((frame, line, name.partition(".")[0]))
    called = next((package for *_, package in frames if package != frames[0][-1]), "")
    inside = [(frame, line) for frame, line, package in frames if package == called]
    if not called or not inside:
        return ""
    frame, line = inside[-1]
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line}"
