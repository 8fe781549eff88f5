"""Everything that needs a GPU, in one command that may be stopped at any time.

    python bench/gpu.py [--minutes 8] [--json gpu.json] [--nets FOLDER] [--cases 40] [--only GROUP ...]
    python bench/gpu.py --wheels FOLDER [--parts 60MB] [--python-version 3.12] [--nvidia [PACKAGE ...]]
                        [--arch 90] [--there PACKAGE ...]
    python bench/gpu.py --from-wheels FOLDER [...]

Rows, in this order: what is here (GPU, versions, engines and their devices); the digits, a small net of each kind, and
what lies in the folder of nets (NAME.onnx with its inputs in NAME.npz), by every engine of gpu-fp16 that is here: SNR
in dB of the worst output against ONNX Runtime in float32 as it was executed, beside what a CPU said before, with sums
in float32 (`rounded`) and in float16 (`half`); milliseconds per run and their ratio to ONNX Runtime's CUDA provider in
float32, the kinds also in PyTorch, float32 and float16; nets of torchvision and transformers, where these are; engines
of TensorRT; contexts (EPContext); int8 in Q/DQ; a sample of the conformance suite, or all of it (`--cases 0`). Each row
is written to the JSON file as it comes, and each group of rows has a process of its own, so that a driver that crashes
or hangs costs its group. After `--minutes` or an interrupt the table of what there is follows.

Without an NVIDIA GPU it runs on what is there: WebGPU takes any GPU, and where ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER is
1 Mesa's software Vulkan. `--wheels` collects what another machine needs, cut into `--parts`, and `--from-wheels` joins
and installs them there into an environment of its own, without network, and measures with that.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GROUP = 120.0  # seconds of one group of rows at most
GROUPS = ("machine", "nets", "exported", "engines", "contexts", "integers", "conformance")


def _child(function: str, arguments: tuple, answers) -> None:
    from gpu_parts import jobs

    try:
        for row in getattr(jobs, function)(*arguments):
            answers.put(row)
    except BaseException as error:
        answers.put({"group": function, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"})
    answers.put(None)


class Run:
    """Rows as they come, until the time is up.

    Args:
        seconds: The time.
        target: The JSON file.
    """

    def __init__(self, seconds: float, target: Path):
        self.end, self.target, self.rows, self.stopped = time.monotonic() + seconds, target, [], False

    def group(self, function: str, *arguments, at_most: float = GROUP) -> None:
        """Run a function of `gpu_parts.jobs` in a process of its own, and take its rows."""
        left = min(at_most, self.end - time.monotonic())
        if self.stopped or left < 5:
            self._add({"group": function, "arguments": [str(each) for each in arguments], "error": "no time was left"})
            return
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        child = context.Process(target=_child, args=(function, arguments, answers), daemon=True)
        child.start()
        until = time.monotonic() + left
        while True:
            try:
                row = answers.get(timeout=0.5)
            except queue.Empty:
                late, gone = time.monotonic() > until, not child.is_alive()
                if self.stopped or late or gone:
                    why = (
                        "stopped"
                        if self.stopped
                        else "too slow"
                        if late
                        else f"the process ended with {child.exitcode}"
                    )
                    self._add({"group": function, "arguments": [str(each) for each in arguments], "error": why})
                    break
                continue
            if row is None:
                break
            self._add(row)
        if child.is_alive():
            child.kill()
        child.join()

    def _add(self, row: dict) -> None:
        self.rows.append(row)
        print({key: value for key, value in row.items() if value is not None}, flush=True)
        beside = self.target.with_name(f"{self.target.name}.partial")
        beside.write_text(json.dumps(self.rows, indent=1), "utf-8")
        beside.replace(self.target)

    def stop(self, *_: object) -> None:
        """End after the row that is being made."""
        self.stopped = True

    def tables(self) -> None:
        """Print the rows as tables, one for each set of columns that begins alike."""
        kinds: dict[str, list[dict]] = {}
        for row in self.rows:
            kinds.setdefault(next(iter(row)), []).append(row)
        for rows in kinds.values():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
            for row in rows:
                print("| " + " | ".join("" if row.get(key) is None else str(row[key]) for key in columns) + " |")


def measure(options: argparse.Namespace) -> None:
    """Measure everything, and print the tables."""
    from gpu_parts import exported, jobs

    run = Run(60 * options.minutes, options.json.absolute())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, run.stop)
    groups = options.only or GROUPS
    if "machine" in groups:
        run.group("machine")
    for name, source in jobs.nets(options.nets) if "nets" in groups else ():
        run.group("net", name, source)
    there = all(importlib.util.find_spec(name) for name in ("torchvision", "transformers"))
    for name in exported.EXPORTED if "exported" in groups and (there or options.only) else ():
        run.group("standard", name)
    for name, source in jobs.nets(None) if "engines" in groups else ():
        run.group("engines", name, source)
    for group in ("contexts", "integers"):
        if group in groups:
            run.group(group)
    if "conformance" in groups:
        run.group("conformance", options.cases, GROUP, at_most=GROUP + 10)
    run.tables()


def elsewhere(options: argparse.Namespace) -> int:
    """Install wheels into an environment of its own, and measure with that."""
    from gpu_parts.wheels import install

    place = Path(tempfile.mkdtemp(prefix="dovetail-gpu-")) / "environment"
    python = install(options.from_wheels, place)
    words = [word for word in sys.argv[1:] if word not in ("--from-wheels", str(options.from_wheels))]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run([str(python), __file__, *words], env=environment).returncode


def size_of(text: str) -> int:
    """The bytes of `60MB`."""
    return int(float(text.upper().removesuffix("MB")) * 1e6)


def main() -> None:
    """Measure, or make wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    parser.add_argument("--nets", type=Path, metavar="FOLDER")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER")
    parser.add_argument("--parts", type=size_of, default=0, metavar="60MB")
    parser.add_argument("--python-version", default="3.12")
    parser.add_argument(
        "--nvidia", nargs="*", metavar="PACKAGE", help="providers for NVIDIA's GPUs, too: all, or these"
    )
    parser.add_argument("--arch", type=int, default=0, metavar="90", help="the device code of that GPU alone")
    parser.add_argument("--there", nargs="+", metavar="PACKAGE", help="packages that the machine has already")
    parser.add_argument("--from-wheels", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.wheels:
        from gpu_parts import wheels

        more = [*wheels.ON_NVIDIA] if options.nvidia == [] else options.nvidia
        wheels.make(options.wheels, options.parts, options.python_version, more, options.there, options.arch)
    elif options.from_wheels:
        raise SystemExit(elsewhere(options))
    else:
        measure(options)


if __name__ == "__main__":
    main()
