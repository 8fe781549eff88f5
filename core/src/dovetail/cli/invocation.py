"""One command of the program `dovetail`: the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dovetail.cli.command_line import CommandLine
from dovetail.cli.common import note
from dovetail.errors import DovetailError, EngineWarning, system_error
from dovetail.installed import DISTRIBUTION
from dovetail.plugin.loading.isolation import described
from dovetail.text import abbreviated

_INTERRUPTED = 130


def invoke(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `dovetail.cli.main.main`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or os.environ.get("DOVETAIL_DEBUG", "") not in ("", "0")
    line = CommandLine(arguments)
    try:
        from dovetail.plugin.temporary import remove_abandoned

        remove_abandoned()
        with _short_warnings():
            parser = line.parser()
            try:
                args = parser.parse_args(arguments)
            except SystemExit as leave:  # argparse exits this way, also after --help
                return leave.code if isinstance(leave.code, int) else 1
            if not hasattr(args, "command"):
                note("error: the command comes first: dovetail COMMAND ...")
                return 2
            code = args.command.run(args)
            sys.stdout.flush()
            return int(code or 0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:  # no command may end without an error message
        if debug:
            import traceback

            traceback.print_exc()
        return _report(error, line, "--json" in arguments)


def _report(error: BaseException, line: CommandLine, as_json: bool) -> int:
    """Report the error on standard error, and as JSON on standard output if requested."""
    code, hint = 1, ""
    if isinstance(error, DovetailError):
        code, message, hint = error.exit_code, error.message, error.hint
    elif isinstance(error, OSError) and error.errno is not None:
        refused = system_error(error)
        message, hint = refused.message, refused.hint
    elif line.owner != DISTRIBUTION:
        message = f"command '{line.name}' of {line.owner} raised {described(error)}"
        hint = f"report it to {line.owner}; --debug shows where"
    else:
        message = f"internal error: {type(error).__name__}: {error}"
        hint = "this is a defect of Dovetail or of a plugin; --debug shows where"
    note(f"error: {message}" + (f"\n  {hint}" if hint else ""))
    if as_json:
        print(json.dumps({"error": abbreviated(message), "hint": abbreviated(hint)}))
    return code


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print each warning as one line, without the source line that raised it.

    Replaced engines are among the notes of a result, which commands print.
    """

    def show(message: Warning | str, *_: object, **__: object) -> None:
        note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("ignore", EngineWarning)
        yield
