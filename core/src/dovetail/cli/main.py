"""Entry point of the program `dovetail`: a process that runs one command.

It imports next to nothing before it can be interrupted without a traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

_INTERRUPTED = 130
_COLLECT_EVERY = 2_000_000  # objects; Python's default of 700 suits long-lived programs with little data


def program() -> None:
    """Run one command, then end the process.

    Imports and graphs are many long-lived objects. Python's cyclic collector traverses them repeatedly, which takes a
    quarter of the time of a small model, so it runs less often here. Before exit everything is frozen, because the
    operating system frees memory faster than the collector. Modules that few commands use are executed on first use
    (`deferred`). A library must not make these choices for its caller, so `main` does not.
    """
    _interrupts_by(_end)
    gc.set_threshold(_COLLECT_EVERY)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process; output files are still written
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open until the process ends
    from dovetail.cli.deferred import defer_imports
    from dovetail.cli.invocation import invoke

    defer_imports()
    try:
        _interrupts_by(signal.default_int_handler)
        code = invoke()
        _interrupts_by(_end)
    except KeyboardInterrupt:
        _end()
    gc.freeze()
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command in this process and return its exit code.

    Args:
        argv: The words after the program name; by default those of this process.
    """
    from dovetail.cli.invocation import invoke

    return invoke(argv)


def _interrupts_by(handler: object) -> None:
    """Set the handler of Ctrl-C, unless the parent process has it ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]  # a function of any arguments


def _end(*_: object) -> None:
    """End the process at once: before or after the command, where nothing is half done."""
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    program()
