"""Calling code of plugins: what it prints stays out of standard output, and nothing that it raises goes unnamed."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator

from dovetail.errors import DovetailError

__all__ = ["PluginWarning", "calling", "described", "foreign_output", "named_errors", "require"]


_REDIRECTING = threading.RLock()


class PluginWarning(RuntimeWarning):
    """A plugin misbehaves."""


@contextlib.contextmanager
def foreign_output(owner: str) -> Iterator[None]:
    """Keep what a plugin prints out of standard output, which belongs to the command and may be read by a program.

    The text goes to standard error, under a warning that names the plugin.

    Args:
        owner: The plugin or the distribution, for the warning.
    """
    # Standard output belongs to the process: of threads that redirect it in turn, the last would restore what another
    # one had put there. So while one does, the others leave it alone.
    if not _REDIRECTING.acquire(blocking=False):
        yield
        return
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        _REDIRECTING.release()
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
    except DovetailError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        hint = "repair it, or leave its distribution out with --no-plugin; --debug shows where it failed"
        raise DovetailError(f"{who} failed: {described(error)}", hint) from error


def require(thing: object, who: str, attributes: Iterable[str], hint: str = "see docs/plugins.md") -> None:
    """Check that what a plugin brings has what is asked of it.

    Raises:
        DovetailError: It lacks something.
    """
    if lacking := [attribute for attribute in attributes if not hasattr(thing, attribute)]:
        raise DovetailError(f"{who} has no {', '.join(lacking)}", hint)


def described(error: BaseException) -> str:
    """The type and the text of an exception: `KeyError: 'x'`; of one that was raised for another, both."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    return text if first is error else f"{text.splitlines()[0][:200]} (caused by {described(first)})"
