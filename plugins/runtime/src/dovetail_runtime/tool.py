"""Workers in processes of their own, which may crash, hang and print; see `dovetail.plugin.Tool`."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from typing import IO, Any

import dovetail.plugin
from dovetail.plugin import EngineError, PythonProcess, TemporaryFolder, ToolEndedError, anonymous_file
from dovetail.plugin.loading import TOOL_DEADLINE, TOOL_PROGRESS
from dovetail.text import printable

from dovetail_runtime import tool_worker

_GRACE = 5.0  # seconds to end in
_LONGEST = 300  # characters of a process's last words
_KEPT = 1 << 16  # bytes at the end of its log that are searched for them
_CAUSES = ("Unhandled exception", "what():", "terminate called", "Fatal error", "Error:")
"""Texts in the line that says why a process ended: of .NET, C++ and Python."""


class ToolProcess(dovetail.plugin.Tool):
    """A worker in a process of its own; see `dovetail.plugin.Tool`.

    Args:
        worker: A module, or the path of its file. With `python`, it can import what is installed there.
        title: The name of the tool, for messages; by default the worker's.
        hint: What to do if the tool does not start, such as what to install.
        python: Another interpreter, or the folder of a virtual environment.
        variables: Environment variables to set, which exist before the first import.
        timeout: Seconds without an answer after which the process is ended. A line of progress begins them again.
        progress: Called with every line of progress.
        restarts: Whether a process that ended is replaced; otherwise every later call says how it ended.
        inherited: File descriptors that the process keeps open, such as that of a lock.

    Attributes:
        starts: The number of processes so far.
    """

    def __init__(
        self,
        worker: str | Path,
        *,
        title: str = "",
        hint: str = "",
        python: str | Path = "",
        variables: Mapping[str, str] | None = None,
        timeout: float = math.inf,
        progress: Callable[[str], None] | None = None,
        restarts: bool = True,
        inherited: Sequence[int] = (),
    ):
        self._process: PythonProcess | None = None
        self._words: IO[bytes] | None = None
        self._temporary: TemporaryFolder | None = None
        self.starts = 0
        self._file, self._title = _file_of(worker), title or str(worker)
        self._hint, self._python, self._variables = hint, python_of(python) if python else "", dict(variables or {})
        self._timeout, self._progress = timeout, progress
        self._restarts, self._inherited = restarts, tuple(inherited)
        self._gone = "was closed"  # how the last process ended, if no other follows
        self._lock, self._owner = threading.Lock(), os.getpid()

    def ask(self, function: str, seconds: float = math.inf, /, **given: Any) -> Any:
        """Call a function of the worker; see `dovetail.plugin.Tool`.

        Raises:
            ToolEndedError: The process ends, or its time is over.
            EngineError: The function raises, or the process cannot be started.
        """
        with self._alive():
            return self._call({"function": function, "given": given}, _Limit(seconds))

    def opened(self, function: str, /, **given: Any) -> dovetail.plugin.Tool:
        """Return this tool with something open in its process; see `dovetail.plugin.Tool`."""
        return _OpenedTool(self, function, given)

    @contextlib.contextmanager
    def _alive(self) -> Iterator[int]:
        """Hold the process for one call, and yield its number; a process that ended is replaced if it may be.

        A process that was forked from the one that started it has none: both would read the answers of the other.
        """
        if self._owner != os.getpid():
            self._process, self._words, self._temporary = None, None, None
            self._lock, self._owner = threading.Lock(), os.getpid()
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                if self.starts and not self._restarts:
                    self._gone = self._gone if self._process is None else self._ended(0)
                    self._end()
                    raise ToolEndedError(f"{self._title} {self._gone}", self._hint)
                self._start()
            yield self.starts

    def close(self) -> None:
        """End the process; a later call starts another one."""
        with self._lock:
            self._end()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # else modules are gone, and the process ends with this one
            self._end()

    def _start(self) -> None:
        self._end()
        self._words = anonymous_file()
        # A process that is killed removes none of its temporary files, which may be as large as a model.
        self._temporary = TemporaryFolder("worker")
        variables = {"TMPDIR": str(self._temporary.path), **self._variables}
        module = tool_worker.__file__ if self._python else tool_worker.__name__
        try:
            self._process = PythonProcess(
                module, (inspect.getfile(PythonProcess), str(self._file)), variables, self._inherited, self._python,
                stdin=PIPE, stdout=PIPE, stderr=self._words,
            )  # fmt: skip
        except OSError as error:
            why = f"{self._title} cannot be started by {self._python or sys.executable}: {error.strerror}"
            raise EngineError(why, self._hint) from error
        self.starts += 1

    def _call(self, request: Mapping[str, Any], limit: _Limit) -> Any:
        process, late, words = self._process, threading.Event(), self._words
        assert process is not None and words is not None, "it was started"
        assert process.stdin is not None and process.stdout is not None, "it has pipes"
        said = os.fstat(words.fileno()).st_size  # not its position, which the process writes at
        try:
            with _limited(process, self._seconds(limit), late):
                tool_worker.send(process.stdin, request)
            while True:
                with _limited(process, self._seconds(limit), late):
                    answer = tool_worker.receive(process.stdout)
                if "progress" not in answer:
                    break
                for told in filter(None, (self._progress, TOOL_PROGRESS.get())):
                    told(printable(answer["progress"]))
        except (EOFError, OSError) as error:
            is_late = late.is_set()
            self._gone = self._late(limit, said) if is_late else self._ended(said)
            self._end()
            raise ToolEndedError(f"{self._title} {self._gone}", self._hint, is_late) from error
        except TypeError:  # an argument that cannot be sent; nothing of it was written
            raise
        except BaseException:
            self._end()  # an interrupted call would be answered to the next one
            raise
        if "error" in answer:
            raise self._raised(answer)
        return answer["answer"]

    def _raised(self, answer: Mapping[str, Any]) -> EngineError:
        """Return what a function of the worker raised."""
        if answer["ours"]:
            return EngineError(answer["error"], answer["hint"], nodes=answer["nodes"])
        missing = answer["kind"] in ("ModuleNotFoundError", "ImportError")
        kind = "" if answer["kind"] in ("", "RuntimeError", "Exception") else f"{answer['kind']}: "
        why = f"{self._title}: {kind}{printable(answer['error'])[:_LONGEST]}"
        return EngineError(why, self._hint if missing else "", nodes=answer["nodes"])

    def _seconds(self, limit: _Limit) -> float:
        """Return the seconds until an answer is late."""
        return max(min(self._timeout, limit.left(), TOOL_DEADLINE.get() - time.monotonic()), 0.0)

    def _late(self, limit: _Limit, said: int) -> str:
        """Say that the process was ended because it was late, with its last words."""
        told = self._last_words(said)
        why = f"gave no answer within {self._timeout:g} s, and was ended"
        if limit.left() <= 0:
            why = f"took longer than {round(limit.seconds, 1):g} s, and was ended"
        elif time.monotonic() >= TOOL_DEADLINE.get():
            why = "was ended at the time limit"
        return why + (f"; it last said: {told}" if told else "")

    def _ended(self, said: int) -> str:
        """Say how the process ended."""
        process = self._process
        assert process is not None, "it was started"
        try:
            code = process.wait(_GRACE)
        except TimeoutExpired:
            process.kill()
            code = process.wait()
        told = self._last_words(said)
        how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
        return f"ended with {how}" + (f": {told}" if told else "")

    def _last_words(self, said: int) -> str:
        """Return the line of the process's output that names a cause, or else its last one; empty if there is none.

        Args:
            said: Where the output of the call begins.
        """
        words = self._words
        assert words is not None, "it was started"
        size = words.seek(0, os.SEEK_END)
        words.seek(max(size - _KEPT, said))
        lines = _lines(words.read().decode(errors="replace"))
        told = next((line for line in lines if any(cause in line for cause in _CAUSES)), (lines or [""])[-1])
        return printable(told)[:_LONGEST]

    def _end(self) -> None:
        process, self._process = self._process, None
        words, self._words = self._words, None
        temporary, self._temporary = self._temporary, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        if words is not None:
            words.close()
        if temporary is not None:
            temporary.cleanup()


class _OpenedTool(dovetail.plugin.Tool):
    """Something open in the process of a tool: the first argument of its calls.

    Args:
        tool: The tool.
        function: What opens it.
        given: The arguments of that.
    """

    def __init__(self, tool: ToolProcess, function: str, given: Mapping[str, Any]):
        self._tool, self._opening = tool, {"function": function, "given": dict(given)}
        self._key, self._process = str(id(self)), 0  # the number of the process that has it open

    def ask(self, function: str, seconds: float = math.inf, /, **given: Any) -> Any:
        """Call a function with what is open, which is opened first in a new process."""
        with self._tool._alive() as number:
            limit = _Limit(seconds)
            if number != self._process:
                self._tool._call({**self._opening, "keep": self._key}, limit)
                self._process = number
            return self._tool._call({"function": function, "given": given, "with": self._key}, limit)

    def opened(self, function: str, /, **given: Any) -> dovetail.plugin.Tool:
        """Return the tool with something else open."""
        return self._tool.opened(function, **given)

    def close(self) -> None:
        """Forget what is open, if the process still has it."""
        tool = self._tool
        with contextlib.suppress(EngineError), tool._lock:
            if self._process == tool.starts and tool._process is not None and tool._process.poll() is None:
                tool._call({"function": "", "given": {}, "forget": self._key}, _Limit())
        self._process = 0


class _Limit:
    """The time limit of a call, which begins now.

    Args:
        seconds: How long it is.
    """

    def __init__(self, seconds: float = math.inf):
        self.seconds, self._end = seconds, time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._end - time.monotonic()


@contextlib.contextmanager
def _limited(process: PythonProcess, seconds: float, late: threading.Event) -> Iterator[None]:
    """End a process if the block takes longer than `seconds`; `late` is then set."""
    if math.isinf(seconds):
        yield
        return

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def python_of(place: str | Path) -> str:
    """Return the interpreter of a virtual environment; any other path is an interpreter already.

    Raises:
        EngineError: There is none.
    """
    path = Path(place).expanduser()
    names = ("bin/python", "Scripts/python.exe", "python.exe")
    found = next((path / name for name in names if (path / name).exists()), None) if path.is_dir() else path
    if found is None or not found.exists():
        raise EngineError(
            f"there is no Python at {place}", "name an interpreter, or the folder of a virtual environment"
        )
    return str(found.absolute())  # not resolved: a link of an environment leads out of it


def _file_of(worker: str | Path) -> Path:
    if isinstance(worker, Path) or worker.endswith(".py"):
        return Path(worker).absolute()
    spec = importlib.util.find_spec(worker)
    if spec is None or not spec.origin:
        raise EngineError(f"there is no module '{worker}'", "name a module that is installed, or a file")
    return Path(spec.origin)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
