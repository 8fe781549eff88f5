"""CPU seconds (user and system) of whole processes: compiling, against another state of Dovetail and a converter.

    python bench/processor.py MODEL... [--backend gpu-fp16] [--repeat 5] [--before PYTHON] [--no-converter]
                              [--extra=--no-check-prepare]

All alternate, and the minimum counts, which changes least on a shared machine. PYTHON is the interpreter of an
environment with the other state, which `--extra` leaves as it is; `converter` is onnxruntime's float16 converter,
which loads, converts and saves. `floor` imports onnx-ir, which everything here needs. Bytecode is written beforehand,
as an installation does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import table


def seconds(*command: object) -> float:
    """CPU seconds of one process, which must succeed."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", default="gpu-fp16")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--before", type=Path, help="the interpreter of an environment with another state")
    parser.add_argument("--no-converter", action="store_true")
    parser.add_argument("--extra", nargs="*", default=[], help="further arguments of `compile`, for this state alone")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            compiling = ("compile", model, "--backend", options.backend, "-o", Path(folder, "out"))
            commands = {
                "floor": (sys.executable, "-c", "import onnx_ir"),
                "ours": (_program(Path(sys.executable)), *compiling, *options.extra),
            }
            if options.before:
                commands["before"] = (_program(options.before), *compiling)
            if not options.no_converter:
                converter = (Path(__file__).with_name("converters.py"), "onnxruntime float16")
                commands["converter"] = (sys.executable, *converter, model, Path(folder, "converted.onnx"))
            seconds(*commands["ours"])
            times = {name: [] for name in commands}
            for _ in range(options.repeat):
                for name, command in commands.items():
                    times[name].append(seconds(*command))
        row = {"model": model.stem, **{name: min(found) for name, found in times.items()}}
        row |= {f"ours/{name}": row["ours"] / row[name] for name in ("before", "converter") if name in row}
        rows.append(row)
    table(rows)


def _program(python: Path) -> Path:
    """The program `dovetail` of the environment of an interpreter; links are kept, since an interpreter is one."""
    return python.with_name("dovetail")


if __name__ == "__main__":
    main()
