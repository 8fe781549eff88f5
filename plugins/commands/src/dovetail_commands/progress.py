"""Progress of long steps: a bar on a terminal or in a notebook, elsewhere a line from time to time."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from dovetail.cli import note
from dovetail.text import abbreviated, printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress", "progress"]

_PERIOD = 0.1  # seconds between two changes of what a notebook shows
_LINES = 30.0  # seconds between two lines where neither a terminal nor a notebook shows a bar


def progress() -> Progress:
    """Return a progress bar: `with dovetail.progress() as bar: dovetail.compile(model, "cpu-bf16", progress=bar)`.

    It is drawn on a terminal and in a notebook. Elsewhere, a line on standard error says every 30 seconds how far the
    work is.
    """
    return Progress()


class Progress:
    """A progress bar that begins when it is called for the first time, and goes when its `with` block ends.

    Called with the current step, the amount done, and the total, or 0 if that is not known.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the progress of a step."""
        if self._bar is None:
            self._bar = _bar_here()
        self._bar.show(what, done, total)

    def say(self, text: str) -> None:
        """Print a line on standard error; above the bar where one is shown."""
        if self._bar is None:
            note(text)
        else:
            self._bar.say(abbreviated(printable(text)))


class Bar(ABC):
    """A bar in one kind of place."""

    @abstractmethod
    def show(self, what: str, done: int, total: int) -> None:
        """Draw the progress of a step."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line above the bar."""

    @abstractmethod
    def close(self) -> None:
        """Remove the bar."""


class TerminalBar(Bar):
    """A bar of Rich on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Rich would put its own streams around those that catch the output of plugins, each inside of the other.
        shown = Console(stderr=True)
        self._bar: RichProgress = RichProgress(
            *parts, console=shown, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._bar.start()
        self._task = self._bar.add_task("")

    def show(self, what: str, done: int, total: int) -> None:
        """Draw the progress of a step."""
        self._bar.update(self._task, description=what, completed=done, total=total or None)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class NotebookBar(Bar):
    """A bar in the output of a notebook's cell; nothing is left of it at the end."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html, self._since, self._last = HTML, time.monotonic(), 0.0
        self._handle = display(HTML(""), display_id=True)

    def show(self, what: str, done: int, total: int) -> None:
        """Draw the progress of a step."""
        now = time.monotonic()
        if now - self._last < _PERIOD:
            return
        self._last = now
        filled = f' value="{done}" max="{total}"' if total else ""
        figures = f"{done}/{total}, " if total else ""
        import html  # slow to import, and used in notebooks alone

        text = html.escape(f"{printable(what)} {figures}{now - self._since:.0f} s")
        self._handle.update(self._html(f'<progress{filled} style="vertical-align: middle"></progress> {text}'))

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        note(text)

    def close(self) -> None:
        """Remove the bar."""
        self._handle.update(self._html(""))


class LineBar(Bar):
    """Lines in a log. A thread writes them, because a step may take longer than the time between two lines."""

    def __init__(self) -> None:
        self._state: tuple[str, int, int] = "", 0, 0
        self._since, self._closed = time.monotonic(), threading.Event()
        threading.Thread(target=self._write, name="dovetail-progress", daemon=True).start()

    def show(self, what: str, done: int, total: int) -> None:
        """Keep the progress of a step for the next line."""
        self._state = what, done, total

    def say(self, text: str) -> None:
        """Print a line."""
        note(text)

    def close(self) -> None:
        """Write no more lines."""
        self._closed.set()

    def _write(self) -> None:
        while not self._closed.wait(_LINES):
            what, done, total = self._state
            figures = f": {done} of {total}" if total else ""
            note(f"{time.monotonic() - self._since:4.0f} s  {abbreviated(printable(what))}{figures}")


def _bar_here() -> Bar:
    """Return a bar for where this program runs: a notebook, a terminal, or neither."""
    if "ipykernel.zmqshell" in sys.modules:
        from ipykernel.zmqshell import ZMQInteractiveShell
        from IPython import get_ipython

        if isinstance(get_ipython(), ZMQInteractiveShell):
            return NotebookBar()
    return TerminalBar() if sys.stderr.isatty() else LineBar()
