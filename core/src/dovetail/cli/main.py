"""The command `dovetail`: one module per command, and one place where errors become messages and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dovetail import __version__
from dovetail.cli import backends, bench, bisect, check, compile, explain, opt, passes, plan, run, verify
from dovetail.cli.output import note
from dovetail.errors import DovetailError

__all__ = ["build_parser", "main"]

_COMMANDS = (compile, plan, explain, run, verify, bisect, opt, backends, passes, check, bench)
_INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="dovetail",
        description="Give every operator of a model a backend and a precision, and say why.",
        epilog="Exit codes: 0 done, 1 the model or the request is at fault, 2 the command line is wrong.",
    )
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or os.environ.get("DOVETAIL_DEBUG", "") not in ("", "0")
    try:
        args = build_parser().parse_args(arguments)
    except SystemExit as leave:  # argparse leaves this way, also after --help.
        return leave.code if isinstance(leave.code, int) else 1
    try:
        with _short_warnings():
            code = args.command(args)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; without this, Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, SystemExit, GeneratorExit) as error:  # no part of a command may leave without a word
        if debug:
            import traceback

            traceback.print_exc()
        return _report(error, "--json" in arguments)


def _report(error: BaseException, as_json: bool) -> int:
    """Say what is wrong, for people on standard error and, if asked, for programs on standard output."""
    code, hint = 1, ""
    if isinstance(error, DovetailError):
        code, message, hint = error.exit_code, error.message, error.hint
    elif isinstance(error, OSError) and error.filename:
        message = f"{error.filename}: {error.strerror}"
    else:
        message = f"internal error: {type(error).__name__}: {error}"
        hint = "this is a defect of Dovetail or of a plugin; --debug shows where"
    note(f"error: {message}" + (f"\n  {hint}" if hint else ""))
    if as_json:
        print(json.dumps({"error": message, "hint": hint}))
    return code


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print a warning as one line, without the line of code that gave it."""

    def show(message, category, filename, lineno, file=None, line=None):
        note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


if __name__ == "__main__":
    sys.exit(main())
