"""`dovetail demo`: what Dovetail does, in a minute, on a small model that comes with it; nothing is downloaded."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from dovetail.cli import PlainCommand, note, plugins_of, print_json, say
from dovetail.errors import UsageError
from dovetail.plugin import PythonProcess

from dovetail_commands.terminal import styled

_MODEL, _DATA = "digits.onnx", "test.npz"
_SECONDS = "20"  # of tuning


class DemoStep(NamedTuple):
    """One command of the demo.

    Attributes:
        why: What it shows.
        words: The command, without the name of the program.
        backend: The backend that it needs, or empty.
    """

    why: str
    words: tuple[str, ...]
    backend: str = ""


STEPS = (
    DemoStep("Compile a network that reads digits for bfloat16, and compare it with the original on real images:",
             ("compile", _MODEL, "--backend", "cpu-bf16", "--data", _DATA, "--report", "-o", "bfloat16"), "cpu-bf16"),
    DemoStep("The same in 8-bit integers, even if these are slower for so small a network:",
             ("compile", _MODEL, "--backend", "cpu-int8", "--data", _DATA, "--report", "-o",
              "int8"), "cpu-int8"),
    DemoStep("And for an accelerator that nobody needs to have here; its arithmetic is emulated bit by bit:",
             ("compile", _MODEL, "--backend", "bpu-int8", "--fix-shape", "image:1x1x8x8", "--data", _DATA, "-o",
              "accelerator"), "bpu-int8"),
    DemoStep("Why is a node where it is, and what would change that?",
             ("explain", "accelerator", "softmax_1", "--model", _MODEL), "bpu-int8"),
    DemoStep("Keep 55 dB: the nodes that cost most accuracy are raised until that is met on images held back:",
             ("compile", _MODEL, "--backend", "cpu-int8", "--data", _DATA, "--min-snr", "55", "-o",
              "goal"), "cpu-int8"),
    DemoStep(f"Which of all these is the fastest on this machine? ({_SECONDS} seconds)",
             ("tune", _MODEL, "--data", _DATA, "--min-snr", "40", "--budget", _SECONDS, "-o", "tuned")),
    DemoStep("Two results side by side, as a page:", ("report", "int8", "bfloat16", "-o", "report.html")),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("dovetail-demo"), help="a new folder (default: dovetail-demo)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the report in the browser")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    folder: Path = args.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already", "name a new folder: dovetail demo FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_MODEL, _DATA):
        with as_file(files("dovetail_commands") / "demo_files" / name) as source:
            shutil.copyfile(source, folder / name)
    registry = plugins_of(args).registry
    start, failed = time.monotonic(), []
    with _inside(folder):
        for step in STEPS:
            there = not step.backend or step.backend in registry.backend
            if step.words[0] not in registry.command or not there:
                note(f"left out: {shlex.join(step.words)} (not installed)")
                continue
            print()
            print(styled(step.why, "bold"))
            print(styled(f"$ dovetail {shlex.join(step.words)}", "cyan"), flush=True)
            with PythonProcess("dovetail", step.words) as program:
                code = program.wait()
            if code:
                failed.append(step.words[0])
    page = folder / "report.html"
    if args.json:
        print_json({"folder": str(folder), "failed": failed, "seconds": round(time.monotonic() - start, 1)})
        return 1 if failed else 0
    say("", f"{time.monotonic() - start:.0f} seconds. All of it is in {folder}; {page} is the page.")
    if page.is_file() and not args.no_open and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    return 1 if failed else 0


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


DEMO = PlainCommand(add_arguments, run)
