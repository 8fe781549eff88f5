"""The contract of work in another process: a program of a vendor, another Python, or what may crash, hang or leak."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Self, cast

from dovetail.api_extensions import api_extension
from dovetail.plugin.engine import EngineError


class ToolEndedError(EngineError):
    """The process of a tool ended during a call, which has no answer.

    Args:
        message: How it ended, with its last words.
        hint: What to do about it.
        is_late: See below.

    Attributes:
        is_late: It was ended because the time of the call was over.
    """

    def __init__(self, message: str, hint: str = "", is_late: bool = False):
        super().__init__(message, hint)
        self.is_late = is_late


class Tool(ABC):
    """A worker in another process, which calls functions of one Python file.

    A crash, a hang or a missing library of the tool is an `EngineError` with the last words of the process, and the
    next call starts another process. The process ends with this one, and what it leaves in its temporary folder is
    removed. Tools are thread-safe, and take one call at a time. As context managers, they are closed at the end.
    """

    @staticmethod
    def start(worker: str, **settings: Any) -> Tool:
        """Return the tool of a worker; its process starts with the first call. See `dovetail_runtime.tool`.

        Args:
            worker: A module, which need not import anything of Dovetail, or the path of its file.
            settings: `title` for messages, `hint` on what to install, `python` (another interpreter, or the folder of a
                virtual environment), `variables` of its environment, `timeout` (seconds without an answer or a line of
                progress), `restarts` (False if a process that ended must not be replaced, because earlier calls left
                something in it), and `inherited` (file descriptors that the process keeps open).

        Raises:
            NotInstalledError: `dovetail-runtime` is not installed.
        """
        return cast("Tool", api_extension("Tool")(worker, **settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def ask(self, function: str, seconds: float = math.inf, /, **given: Any) -> Any:
        """Call a function of the worker with keyword arguments, and return what it returns.

        Arguments and results are numbers, texts, bytes, arrays, None, and lists and mappings of these. A generator
        yields lines of progress, and returns its result. While a region is emitted or loaded, the lines are shown as
        the progress of the compilation.

        Args:
            function: Its name.
            seconds: Time limit of this call; the process is ended when it is over.
            given: The arguments.

        Raises:
            ToolEndedError: The process ends, or its time is over.
            EngineError: The function raises. A `DovetailError` keeps its message and its hint.
        """

    @abstractmethod
    def opened(self, function: str, /, **given: Any) -> Tool:
        """Return this tool with something open in its process, such as a loaded program.

        A function of the worker opens it, before the first call. What it returns stays in the process, may be any
        object, and is the first argument of every call. A process that ended is replaced, and opens it again. One
        process serves any number of these; closing one of them forgets what is open, and leaves the process to the
        others.

        Args:
            function: The function that opens it.
            given: Its keyword arguments.
        """

    @abstractmethod
    def close(self) -> None:
        """End the process."""
