"""Child processes: the one place that starts them, so that none imports modules of the folder it is started in.

A model often comes in a folder with other people's files. Python puts the current folder first on the path of
`python -m` and `python -c`, where a file such as `numpy.py` would replace the library. A path that the user set
(`PYTHONPATH`) stays; empty entries in it, which stand for the current folder, do not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a system without it


_SAFE_PATH = "PYTHONSAFEPATH"
_SEARCHED = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_PARENT = "DOVETAIL_PARENT"
_GRACE = 5.0  # seconds to end in


class Finished(NamedTuple):
    """A process that has ended.

    Attributes:
        code: Its exit code; below 0, the number of the signal that ended it.
        text: What it printed, standard error included.
    """

    code: int
    text: str


class PythonProcess(subprocess.Popen[bytes]):
    """A module run as a separate Python program, which ends with this process if it calls `end_with_parent`.

    It finds the modules that this process finds, except those of the current folder. Another Python finds its own.

    Args:
        module: The module, run as `python -m` runs it; with another Python, the path of a file.
        arguments: Its arguments.
        variables: Environment variables to set.
        pass_fds: File descriptors that it inherits.
        python: Another Python to run it in; by default that of this process.
        streams: `stdin`, `stdout` and `stderr` as `subprocess.Popen` takes them.
    """

    _alive = -1

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        python: str = "",
        **streams: Any,
    ):
        # Nothing is written to the pipe: its other end hears when this process has ended.
        theirs, self._alive = os.pipe() if fcntl is not None else (-1, -1)
        # Children of another Python would find the modules of this one.
        path = "" if python else os.pathsep.join(import_path())
        given = {"PYTHONPATH": path, _PARENT: str(theirs), **(variables or {})}
        program = [python, "-I", module] if python else [sys.executable, "-P", "-m", module]
        try:
            super().__init__(
                [*program, *arguments],
                env=child_environment(given), pass_fds=(*pass_fds, *([theirs] if theirs >= 0 else [])), **streams,
            )  # fmt: skip
        except BaseException:
            self._let_go()
            raise
        finally:
            if theirs >= 0:
                os.close(theirs)

    def __del__(self, *arguments: Any, **keywords: Any) -> None:
        self._let_go()
        super().__del__(*arguments, **keywords)

    def _let_go(self, close: Callable[[int], None] = os.close) -> None:
        """Close the pipe, which ends a process that is still there; when Python ends, its modules may be gone."""
        alive, self._alive = self._alive, -1
        if alive >= 0:
            try:  # noqa: SIM105
                close(alive)
            except OSError:
                pass


def end_with_parent() -> None:
    """End this process when the one that started it as a `PythonProcess` ends, for whatever reason.

    The kernel sends the signal, so that native code that holds Python's lock does not delay it.
    """
    descriptor = int(os.environ.pop(_PARENT, "-1"))
    if descriptor < 0 or fcntl is None:
        return
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have ended before.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if poll.poll(0):
        os.kill(os.getpid(), signal.SIGKILL)


def run_command(command: str | Sequence[str], seconds: float | None = None) -> Finished:
    """Run a program, without standard input, and return its exit code and what it prints.

    It ends when this process does, for whatever reason.

    Args:
        command: Program and arguments; a text for a shell, which must be the user's own.
        seconds: Time limit.

    Raises:
        TimeoutError: The time is over; the program and its own children were ended. The error has its last words.
        OSError: It cannot be started.
    """
    with _ended_with_this_process() as guard:
        process = subprocess.Popen(
            command, shell=isinstance(command, str), env=child_environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        guard(process.pid)
        return _finished(process, seconds)


def _finished(process: subprocess.Popen[str], seconds: float | None) -> Finished:
    """Wait for a command, and end it with all that it started if it takes too long, or if the wait is interrupted."""
    try:
        text, _ = process.communicate(timeout=seconds)
    except BaseException as error:
        said = _end_group(process).split("\n")
        if isinstance(error, subprocess.TimeoutExpired):
            words = next((f"; it last said: {line.strip()}" for line in reversed(said) if line.strip()), "")
            raise TimeoutError(f"no answer within {seconds:g} s, and was ended{words}") from None
        raise
    return Finished(process.returncode, text)


@contextlib.contextmanager
def _ended_with_this_process() -> Iterator[Callable[[int], None]]:
    """Yield a function that takes a group of processes, which ends if this process ends inside of the block.

    A shell reads from a pipe that only this process has open for writing, and hears of its end that way. It is started
    first, so that nothing is left behind if this process is killed while the group starts.
    """
    if fcntl is None:  # Windows
        yield lambda group: None
        return
    watch = subprocess.Popen(
        ["/bin/sh", "-c", 'read group; read _; [ -z "$group" ] || kill -9 "-$group"'], stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert watch.stdin is not None
    told = watch.stdin

    def tell(group: int) -> None:
        told.write(f"{group}\n".encode())
        told.flush()

    try:
        yield tell
    finally:
        watch.kill()
        watch.communicate()


def _end_group(process: subprocess.Popen[str]) -> str:
    """End a process and those that it started, which may hold its standard output open; return what it printed."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that left the group still prints
        return process.communicate(timeout=_GRACE)[0]
    return ""


def child_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child process: this one's, without the current folder on any search path.

    Python programs, the child's own children included, get a safe path (`python -P`), unless the user decided on
    `PYTHONSAFEPATH` otherwise.

    Args:
        variables: Variables to set.
    """
    found = {_SAFE_PATH: "1", **os.environ, **(variables or {})}
    for name in _SEARCHED:
        entries = [entry for entry in found.get(name, "").split(os.pathsep) if entry]
        if entries:
            found[name] = os.pathsep.join(entries)
        else:
            found.pop(name, None)
    return found


def import_path() -> list[str]:
    """Return the path on which this process finds modules, without the current folder unless `PYTHONPATH` names it."""
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it was removed
        here = ""
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if here in map(os.path.realpath, named):
        here = ""
    return [entry for entry in sys.path if entry and os.path.realpath(entry) != here]
