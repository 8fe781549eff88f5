"""CPU seconds and peak memory of whole processes: `dovetail compile` beside converters and quantizers, in turns.

    python bench/seconds.py FOLDER [--only float16 cpu-int8 ...] [--repeat 3] [--before PYTHON] [--models FILE ...]
                            [--wheels WHEELS --nets NET ...]

FOLDER keeps the models that are made: `growth.py`'s graphs of 300 to 30,000 nodes, `int8_nets.py`'s ResNet-50,
BERT-base and MiniLM with random weights, a single Relu, and one Add for each of 20,000 initializers. A row is a process
of ours and one of each peer, in turns; the least of each counts, which changes least on a shared machine.

    float16       gpu-fp16 without data; the peers are the converters of ONNX Runtime and of
                  onnxconverter-common, if that is installed
    cpu-int8      with four samples, all corrections, and the comparison of the result with its original; the peer is
                  quantize_static on the same samples, after its own preprocessing, which compares nothing
    integers      backends for other devices with the same samples; the peer is gpu-fp16 with them
    start         one node, and --help; the peer imports the onnx package
    initializers  gpu-fp16 on 20,000 initializers beside the converters

`--models` adds ONNX files to cpu-int8, each with an `.npz` of one set of inputs beside it, from which three more are
drawn; `--nets` adds trained nets of `trained_nets` with real samples. `memory` is the largest resident memory, ours
over the peer's, and `bytes` that of the files. `before` is another state of Dovetail, by the interpreter of its
environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from converters import installed
from measure import table
from onnx import TensorProto, helper, numpy_helper

BENCH = Path(__file__).parent
GROUPS = ("float16", "cpu-int8", "integers", "start", "initializers")
CONVERTERS = ("onnxruntime float16", "onnxconverter_common")
DEVICES = ("ppl-int8", "bpu-int8:march=bayes,observer=minmax", "bpu-int8:march=bayes")
SAMPLES, MOST, INITIALIZERS = 4, 12, 20_000


@dataclass(frozen=True)
class Row:
    """One kind of work: arguments of `dovetail`, and commands that do as much by name."""

    work: str
    ours: tuple[object, ...]
    peers: dict[str, tuple[object, ...]]


@dataclass(frozen=True)
class Usage:
    """CPU seconds and the largest resident memory of a process and its children, and the bytes that it wrote."""

    seconds: float
    memory: int
    size: int = 0


def usage(*command: object) -> Usage:
    """What a process takes, which must succeed; bytecode is written, as an installation does."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{errors.decode()[-2000:]}")
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--before", type=Path, help="the interpreter of an environment with another state")
    parser.add_argument("--models", nargs="+", type=Path, default=[])
    parser.add_argument("--wheels", type=Path, help="where wheels of trained nets are, or are downloaded to")
    parser.add_argument("--nets", nargs="+", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = Nets(options.folder, options.models, options.wheels, options.nets)
    programs = {"ours": Path(sys.executable).with_name("dovetail")}  # not resolved: an environment's Python is a link
    if options.before:
        programs["before"] = options.before.with_name("dovetail")
    rows = [measured(row, programs, options.repeat) for group in options.only for row in rows_of(group, made)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table([{name: row.get(name, "") for name in columns} for row in rows])


def measured(row: Row, programs: dict[str, Path], repeat: int) -> dict[str, object]:
    """The least usage of each process, in turns, after one turn that fills caches."""
    found: dict[str, list[Usage]] = {}
    commands = {name: (program, *row.ours) for name, program in programs.items()} | row.peers
    for turn in range(repeat + 1):
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "out")
                used = usage(*(out if part is OUT else part for part in command))
                files = [out, *out.rglob("*.onnx*")]
                size = sum(file.stat().st_size for file in files if file.is_file())
            if turn:
                found.setdefault(name, []).append(replace(used, size=size))
    least = {name: min(runs, key=lambda used: used.seconds) for name, runs in found.items()}
    ours, peer = least["ours"], min(row.peers, key=lambda name: least[name].seconds)
    cells: dict[str, object] = {"work": row.work, "ours s": ours.seconds, "peer": peer, "peer s": least[peer].seconds}
    cells |= {"ratio": ours.seconds / least[peer].seconds, "memory": ours.memory / least[peer].memory}
    if ours.size and least[peer].size:
        cells["bytes"] = ours.size / least[peer].size
    if "before" in least:
        cells |= {"before s": least["before"].seconds, "of before": ours.seconds / least["before"].seconds}
    print(
        " | ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in cells.values()), flush=True
    )
    return cells


OUT = object()
"""Stands for the path of a result in a command."""


def rows_of(group: str, nets: Nets) -> Iterator[Row]:
    """The rows of a group."""

    def compiled(model: Path, backend: str, data: Path | None = None) -> tuple[object, ...]:
        given = ("--data", data) if data is not None else ()
        return "compile", model, "--backend", backend, *given, "-o", OUT

    def converted(model: Path) -> dict[str, tuple[object, ...]]:
        there = [name for name in CONVERTERS if installed(name, sys.executable)]
        return {name: (sys.executable, BENCH / "converters.py", name, model, OUT) for name in there}

    if group == "float16":
        for nodes in (300, 3_000, 10_000, 30_000):
            model = nets.growth(nodes)
            yield Row(f"float16, {nodes} nodes", compiled(model, "gpu-fp16"), converted(model))
    elif group == "cpu-int8":
        for name, model, data in nets.with_data():
            static = (sys.executable, BENCH / "quantizers.py", "static", model, data, OUT)
            yield Row(f"cpu-int8, {name}", compiled(model, "cpu-int8", data), {"quantize_static": static})
    elif group == "integers":
        model = nets.growth(1_000)
        data = nets.samples(model, {"x": np.zeros((1, 8, 8, 8), np.float32)})
        floats = (Path(sys.executable).with_name("dovetail"), *compiled(model, "gpu-fp16", data))
        for backend in DEVICES:
            yield Row(f"{backend}, 1000 nodes", compiled(model, backend, data), {"gpu-fp16": floats})
    elif group == "start":
        imported = {"import onnx": (sys.executable, "-c", "import onnx")}
        yield Row("one node", compiled(nets.one_node(), "gpu-fp16"), imported)
        yield Row("--help", ("--help",), imported)
    elif group == "initializers":
        model = nets.initializers()
        yield Row(f"{INITIALIZERS} initializers", compiled(model, "gpu-fp16"), converted(model))


class Nets:
    """The models of the rows, which are made once."""

    def __init__(self, folder: Path, models: list[Path], wheels: Path | None, trained: list[str]):
        self._folder, self._models, self._wheels, self._trained = folder, models, wheels, trained

    def growth(self, nodes: int) -> Path:
        """A graph of many small nodes."""
        from growth import build

        return self._saved(f"growth{nodes}", lambda: build(nodes))

    def one_node(self) -> Path:
        """A single Relu."""
        return self._saved("one", lambda: _model([helper.make_node("Relu", ["x"], ["y"])], "y", []))

    def initializers(self) -> Path:
        """A chain with many small constants."""

        def build() -> onnx.ModelProto:
            numbers = np.random.default_rng(0).normal(size=(INITIALIZERS, 8)).astype(np.float32)
            weights = [numpy_helper.from_array(row, f"w{index}") for index, row in enumerate(numbers)]
            names = ["x", *(f"s{index}" for index in range(INITIALIZERS))]
            nodes = [
                helper.make_node("Add", [names[index], f"w{index}"], [names[index + 1]], f"add{index}")
                for index in range(INITIALIZERS)
            ]
            return _model(nodes, names[-1], weights)

        return self._saved(f"initializers{INITIALIZERS}", build)

    def with_data(self) -> Iterator[tuple[str, Path, Path]]:
        """Nets with folders of samples, by name."""
        from int8_nets import NETS

        for nodes in (300, 1_000):
            model = self.growth(nodes)
            yield f"{nodes} nodes", model, self.samples(model, {"x": np.zeros((1, 8, 8, 8), np.float32)})
        for name in NETS:
            model = self._folder / f"{name}.onnx"
            if not model.exists():
                subprocess.run([sys.executable, BENCH / "int8_nets.py", self._folder, name], check=True)
            yield name, model, self.samples(model, dict(np.load(model.with_suffix(".npz"))))
        for model in self._models:
            yield model.stem, model, self.samples(model, dict(np.load(model.with_suffix(".npz"))))
        if self._trained:
            from trained_nets.catalog import NETS as TRAINED
            from trained_nets.wheels import Wheels

            wheels, known = Wheels(self._wheels), {net.name: net for net in TRAINED}
            for net in map(known.__getitem__, self._trained):
                data = self._folder / f"{net.name} samples"
                data.mkdir(exist_ok=True)
                given = [feeds for stream in net.streams(wheels)[::2] for feeds in stream][:MOST]
                for number, feeds in enumerate(given):
                    np.savez(data / f"{number:04}.npz", **feeds)
                yield net.name, wheels.file(net.wheel, net.path), data

    def samples(self, model: Path, like: dict[str, np.ndarray]) -> Path:
        """A folder of samples: floats of a normal distribution, and other inputs as they are given."""
        folder = self._folder / f"{model.stem} samples"
        if not folder.exists():
            folder.mkdir()
            rng = np.random.default_rng(0)
            for number in range(SAMPLES):
                feeds = {
                    name: rng.normal(size=array.shape).astype(array.dtype) if array.dtype.kind == "f" else array
                    for name, array in like.items()
                }
                np.savez(folder / f"{number}.npz", **feeds)
        return folder

    def _saved(self, name: str, build: Callable[[], onnx.ModelProto]) -> Path:
        path = self._folder / f"{name}.onnx"
        if not path.exists():
            onnx.save(build(), path)
        return path


def _model(nodes: list[onnx.NodeProto], output: str, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", output)]
    graph = helper.make_graph(nodes, "made", borders[:1], borders[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


if __name__ == "__main__":
    main()
