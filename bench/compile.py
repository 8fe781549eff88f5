"""Compile models for a backend and set time and memory against copying the file and against a floor.

    python bench/compile.py MODEL... [--backend cpu-bf16] [--repeat 3] [--passes] [--json]

`copy` copies the file and its data. `floor` is what any converter has to do at least: load the model, cast every
float32 initializer to float16, save; `floor cast` is the middle of it. `passes` is everything between opening and
saving, `convert` passes and saving together less the time that writing the same bytes takes: the conversion alone,
weights included. Each is measured in a process of its own, in turns; medians.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from measure import Peak, alone, median, table, timed


def copy(model: Path) -> dict:
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        start = time.perf_counter()
        for file in (model, *model.parent.glob(model.name + "*.data")):
            shutil.copyfile(file, Path(folder, file.name))
        return {"copy": time.perf_counter() - start}


def floor(model: Path) -> dict:
    import numpy as np
    import onnx
    from onnx import numpy_helper

    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        proto, load = timed(onnx.load, str(model))
        start = time.perf_counter()
        for tensor in proto.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                with np.errstate(over="ignore"):
                    array = numpy_helper.to_array(tensor).astype(np.float16)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        cast = time.perf_counter() - start
        _, save = timed(onnx.save, proto, str(Path(folder, "floor.onnx")))
    return {"floor": load + cast + save, "floor cast": cast}


def ours(model: Path, backend: str) -> dict:
    import dovetail
    import onnx  # noqa: F401  (its import is the interpreter's, not ours)
    import onnx_ir  # noqa: F401
    from dovetail.passes import Instrumentation

    passes: dict[str, float] = {}

    def finished(result) -> None:
        for step in result.passes:
            passes[step.name] = passes.get(step.name, 0) + step.seconds
            passes["verifier"] = passes.get("verifier", 0) + step.verify_seconds

    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        with Peak() as peak:
            opened, opening = timed(dovetail.open, model)
            compiled, compiling = timed(
                dovetail.compile, opened, [backend], verify=False, instrumentation=Instrumentation(finished=finished)
            )
            _, saving = timed(compiled.save, folder)
        written = sum(file.stat().st_size for file in Path(folder).iterdir())
        writing = _write(Path(folder, "same size"), written)
    return {
        "open": opening,
        "passes": compiling,
        "save": saving,
        "whole": opening + compiling + saving,
        "convert": compiling + max(0.0, saving - writing),
        "peak MB": peak.bytes / 1e6,
        "by pass": passes,
    }


def _write(path: Path, size: int) -> float:
    block = bytes(1 << 22)
    start = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(0, size, len(block)):
            file.write(block)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--passes", action="store_true", help="also print the seconds of every pass")
    parser.add_argument("--no-floor", action="store_true", help="leave the floor out: it loads the whole model")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows, steps = [], []
    for model in options.models:
        runs = []
        for _ in range(options.repeat):
            run = alone(copy, model) | alone(ours, model, options.backend)
            if not options.no_floor:
                run |= alone(floor, model)
            runs.append(run)
        row = {"model": model.stem, **median(runs)}
        row["whole/copy"] = row["whole"] / row["copy"]
        if not options.no_floor:
            row["convert/floor cast"] = row["convert"] / row["floor cast"]
            row["whole/floor"] = row["whole"] / row["floor"]
        rows.append(row)
        steps.append({"model": model.stem, **median([run["by pass"] for run in runs])})
    table(rows, options.json)
    if options.passes:
        print()
        table(steps, options.json)


if __name__ == "__main__":
    main()
