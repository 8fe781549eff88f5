"""Start-up: CPU seconds of whole processes, in turns; the floors are an interpreter and the imports of other projects.

python bench/start.py [--repeat 9] [--before PYTHON]

The model has one node. `--before` is the interpreter of an environment with an earlier state, which takes turns.
Bytecode is written by a first round, whatever PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from measure import table

MODEL = """<ir_version: 9, opset_import: ["": 20]>
one (float[1, 4] x) => (float[1, 4] y) { [r] y = Relu (x) }"""
_FLOOR = "from dovetail.cli.deferred import defer_imports; defer_imports(); import numpy, onnx_ir, onnx, yaml"
COMMANDS = {
    "python, nothing": ["-c", ""],
    "import onnx_ir": ["-c", "import onnx_ir"],
    "import numpy, onnx, onnx_ir without sympy, yaml": ["-c", _FLOOR],
    "import dovetail": ["-c", "import dovetail"],
    "dovetail --help": ["-m", "dovetail", "--help"],
    "dovetail --version": ["-m", "dovetail", "--version"],
    "dovetail backends": ["-m", "dovetail", "backends"],
    "dovetail plan --backend gpu-fp16": ["-m", "dovetail", "plan", "one.onnx", "--backend", "gpu-fp16"],
    **{
        f"dovetail compile --backend {name}": ["-m", "dovetail", "compile", "one.onnx", "--backend", name, "-o", name]
        for name in ("gpu-fp16", "host", "cpu-bf16")
    },
    "dovetail explain OUT": ["-m", "dovetail", "explain", "gpu-fp16"],  # the result of the command above
}


def cpu_seconds(python: str, arguments: list[str], folder: Path) -> float:
    """Run one process in a folder, and return its user and system time."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, *arguments], check=True, capture_output=True, cwd=folder, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--before", metavar="PYTHON")
    args = parser.parse_args()
    pythons = {**({"before": args.before} if args.before else {}), "now": sys.executable}
    times: dict[tuple[str, str], list[float]] = {(command, when): [] for command in COMMANDS for when in pythons}
    with tempfile.TemporaryDirectory() as work:
        for turn in range(args.repeat + 1):
            for when, python in pythons.items():
                # A result that is there would be recognized, so each turn has a folder of its own.
                folder = Path(work, f"{when} {turn}")
                folder.mkdir()
                onnx.save(onnx.parser.parse_model(MODEL), folder / "one.onnx")
                for command, arguments in COMMANDS.items():
                    seconds = cpu_seconds(python, arguments, folder)
                    if turn:  # the first fills caches
                        times[command, when].append(seconds)
    table([{"command": one, **{f"{when}, CPU s": min(times[one, when]) for when in pythons}} for one in COMMANDS])


if __name__ == "__main__":
    main()
