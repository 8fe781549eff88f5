"""The contract of tools: programs of vendors that run in a process of their own, often in another environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

from dovetail.api_extensions import api_extension


class Tool(ABC):
    """A worker in another process, which calls functions of one Python file.

    A crash, a hang or a missing library of the tool is an `EngineError` with the last words of the process, and the
    next call starts another process. Tools are thread-safe, and take one call at a time.
    """

    @staticmethod
    def start(worker: str, **settings: Any) -> Tool:
        """Return the tool of a worker; its process starts with the first call. See `dovetail_runtime.tool`.

        Args:
            worker: A module, which need not import anything of Dovetail, or the path of its file.
            settings: `title` for messages, `hint` on what to install, `python` (another interpreter, or the folder of a
                virtual environment), `variables` of its environment, and `timeout` of a call in seconds.
        """
        return cast("Tool", api_extension("Tool")(worker, **settings))

    @abstractmethod
    def ask(self, function: str, /, **given: Any) -> Any:
        """Call a function of the worker with keyword arguments, and return what it returns.

        Arguments and results are numbers, texts, bytes, arrays, None, and lists and mappings of these. A generator
        yields lines of progress, and returns its result. While a region is emitted or loaded, the lines are shown as
        the progress of the compilation.

        Raises:
            EngineError: The function raises, the process ends, or its time is over.
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
