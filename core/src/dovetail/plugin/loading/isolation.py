"""Isolation of plugin code: its output stays out of standard output, and its errors name the plugin."""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from dovetail.errors import DovetailError, system_error
from dovetail.plugin.loading.output import captured
from dovetail.plugin.renamed import new_name

_REPAIR = "repair it, or leave its distribution out with --no-plugin; --debug shows where it failed"


class PluginWarning(RuntimeWarning):
    """Warning about a misbehaving plugin."""


@contextlib.contextmanager
def foreign_output(owner: str) -> Iterator[None]:
    """Keep a plugin's output out of standard output, which belongs to the command and may be parsed by a program.

    The output goes to standard error, under a warning that names the plugin. Output of other threads and of the user's
    own functions (`own_output`) is not redirected.

    Args:
        owner: The plugin or distribution, for the warning.
    """
    with captured() as printed:
        try:
            yield
        finally:
            if text := printed.getvalue():
                warnings.warn(f"{owner} prints to standard output; shown here instead", PluginWarning, stacklevel=4)
                sys.stderr.write(text if text.endswith("\n") else text + "\n")


@contextlib.contextmanager
def calling(title: str) -> Iterator[None]:
    """Guard a call of plugin code: its output goes to standard error, and any exception becomes an error that names it.

    Args:
        title: Kind, name and distribution: `edit 'unit-conv' of dovetail-acme`.

    Raises:
        DovetailError: The block raised any exception, SystemExit included.
    """
    with named_errors(title), foreign_output(title):
        yield


@contextlib.contextmanager
def named_errors(title: str) -> Iterator[None]:
    """Guard a call of plugin code that may run in several threads at once, without redirecting output; see `calling`.

    Raises:
        DovetailError: The block raised any exception, SystemExit included.
    """
    try:
        yield
    except (DovetailError, KeyboardInterrupt):
        raise
    except OSError as error:
        if error.errno is not None:
            raise system_error(error, title) from error
        raise DovetailError(f"{title} failed: {described(error)}", _REPAIR) from error
    except BaseException as error:  # SystemExit too: plugin code must not end the program silently
        raise DovetailError(f"{title} failed: {described(error)}", _REPAIR) from error


def described(error: BaseException) -> str:
    """Format an exception with its place in plugin code: `KeyError: 'x' (acme/files.py:20)`.

    For an exception raised from another one, both are included.
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text += new_name(error)
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    if first is not error:
        return f"{text.splitlines()[0][:200]} (caused by {described(first)})"
    place = _place_of(error)
    return f"{text} ({place})" if place else text


def _place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame in the called package; empty if there is none.

    The first frames belong to the caller. The innermost frame of all may be in a library that the package uses.
    """
    # The context-manager machinery adds frames between the caller and the plugin.
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
