"""What a call of a result in several regions costs, beside its engines alone on the same files.

    python bench/regions.py [--calls 1000] [--net tiny medium branches]

`tiny` and `medium` are ten regions, by turns on ONNX Runtime and OpenVINO (cpu-bf16, in float32), of two convolutions
each. `engines` is the sum of the engines' own calls over arrays that are bound once, and counts as 1. `load` is
`dovetail.load(OUT).run`, `session` and `session again` are `dovetail.InferenceSession`, which has loaded the result or
starts from what the first one kept; `run.py` and `C++` are the export. All have one thread and take turns; the fastest
fifth of all calls counts, since other work on the machine makes calls longer and never shorter. The C++ program prints
its own median; the least of five runs counts.

`branches` is two heavy branches, each on one of the engines: `one after the other` and `at the same time`.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import openvino
from calls import fastest, session_of
from dovetail_export.exporting import export
from measure import table
from onnx import helper, numpy_helper

Run = Callable[[], object]
NETS = {"tiny": (4, 8), "medium": (32, 32)}  # channels, and extents of the image
BRANCH = (64, 40, 6)  # channels, extents, convolutions of a branch


def block(name: str, read: str, given: str, channels: int, convolutions: int, rng: np.random.Generator):
    """Nodes and weights of a chain of convolutions whose names begin with `name`."""
    nodes, weights = [], []
    for number in range(convolutions):
        weight = rng.standard_normal((channels, channels, 3, 3)) / (3 * channels**0.5)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"{name}_w{number}"))
        made = given if number == convolutions - 1 else f"{name}_{number}"
        inputs = [read, f"{name}_w{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}_c{number}"], f"{name}_conv{number}", pads=[1] * 4))
        kind = "Tanh" if number % 2 else "Relu"
        nodes.append(helper.make_node(kind, [f"{name}_c{number}"], [made], f"{name}_act{number}"))
        read = made
    return nodes, weights


def net(parts, channels: int, extent: int, outputs: list[str]) -> onnx.ModelProto:
    shape = [1, channels, extent, extent]
    nodes, weights = [node for part in parts for node in part[0]], [w for part in parts for w in part[1]]
    declared = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "net", declared[:1], declared[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(channels: int, extent: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    parts = [block(f"{'oh'[n % 2 == 0]}{n}", f"v{n}" if n else "x", f"v{n + 1}", channels, 2, rng) for n in range(10)]
    return net(parts, channels, extent, ["v10"])


def branches() -> onnx.ModelProto:
    channels, extent, convolutions = BRANCH
    rng = np.random.default_rng(0)
    parts = [block(name, "x", f"y{name}", channels, convolutions, rng) for name in "ho"]
    return net(parts, channels, extent, ["yh", "yo"])


def bound(folder: Path, description: dict, feeds: dict[str, np.ndarray]) -> Run:
    """Return a call of all engines over arrays that are bound once."""
    arrays, calls, held = {name: array.copy() for name, array in feeds.items()}, [], []
    for step in description["steps"]:
        arrays.update({one["name"]: np.empty(one["shape"], one["type"]) for one in step["outputs"]})
        path, settings = str(folder / step["files"][0]["path"]), step["settings"]
        names = [one["name"] for one in step["outputs"]]
        if step["engine"] == "onnxruntime":
            session = session_of(path, settings)
            binding = session.io_binding()
            for name in (*step["inputs"], *names):
                held.append(onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name]))
                bind = binding.bind_ortvalue_output if name in names else binding.bind_ortvalue_input
                bind(name, held[-1])
            calls.append(lambda session=session, binding=binding: session.run_with_iobinding(binding))
        else:
            configuration = {**settings["configuration"], "INFERENCE_NUM_THREADS": 1}
            compiled = openvino.Core().compile_model(path, settings["device"], configuration)
            request = compiled.create_infer_request()
            for index, name in enumerate(settings["inputs"]):
                request.set_input_tensor(index, openvino.Tensor(arrays[name], shared_memory=True))
            for index, name in enumerate(settings["outputs"]):
                request.set_output_tensor(index, openvino.Tensor(arrays[name], shared_memory=True))
            calls.append(lambda request=request: request.infer(share_outputs=True))

    def run(held: object = (arrays, held)) -> None:
        for call in calls:
            call()

    return run


def python_runner(folder: Path, parallel: str = "off") -> object:
    """Return the `Runner` of `run.py` in an export."""
    spec = importlib.util.spec_from_file_location("run", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Runner(folder, threads=1, parallel=parallel)


def in_cpp(folder: Path, feeds: dict[str, np.ndarray], calls: int, parallel: str = "off") -> float:
    """Return microseconds of a call of the C++ runner: the least median of five runs."""
    from dovetail_export.runners.run import write_tensors

    subprocess.run(["g++", "-std=c++17", "-O2", "dovetail_run.cpp", "-ldl", "-pthread", "-o", "dovetail_run"],
                   cwd=folder, check=True)  # fmt: skip
    write_tensors(folder / "inputs", feeds, dict.fromkeys(feeds, "float32"))
    libraries = {
        "DOVETAIL_ONNXRUNTIME": next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*")),
        "DOVETAIL_OPENVINO": next(Path(openvino.__file__).parent.glob("libs/libopenvino_c.so*")),
    }
    command = [
        "./dovetail_run",
        ".",
        "inputs",
        "answers",
        "--repeat",
        str(calls),
        "--threads",
        "1",
        "--parallel",
        parallel,
    ]
    environment = {key: str(path) for key, path in libraries.items()}
    medians = []
    for _ in range(5):
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment)
        medians.append(float(done.stdout.split()[0]) * 1000)
    return min(medians)


def compiled(model: onnx.ModelProto, place: Path) -> dict:
    """Compile nodes named `h*` for the host and others for OpenVINO, and export; return the description."""
    dovetail.compile(model, "cpu-bf16", pins=["h*=host", "o*=cpu-bf16/float32"], verify=False).save(place / "out")
    description = export(place / "out", place / "python", "python")
    export(place / "out", place / "c", "c")
    return description


def row(name: str, calls: int) -> dict[str, object]:
    """One row of a chain."""
    channels, extent = NETS[name]
    feeds = {"x": np.random.default_rng(1).standard_normal((1, channels, extent, extent)).astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        description = compiled(chain(channels, extent), place)
        result = dovetail.load(place / "out")
        result.options["threads"] = 1
        session = dovetail.InferenceSession(place / "out", sess_options=options)
        session.run(None, feeds)
        again, runner = dovetail.InferenceSession(place / "out", sess_options=options), python_runner(place / "python")
        found = fastest(
            {
                "engines": bound(place / "python", description, feeds),
                "load": lambda: result.run(feeds),
                "session": lambda: session.run(None, feeds),
                "session again": lambda: again.run(None, feeds),
                "run.py": lambda: runner.run(feeds),
            },
            calls,
        )
        found["C++"] = in_cpp(place / "c", feeds, calls)
    least = found["engines"]
    return {"net": name, "steps": len(description["steps"]), "engines us": f"{least:.0f}",
            **{key: f"{us / least:.2f}" for key, us in found.items() if key != "engines"}}  # fmt: skip


def parallel_rows(calls: int) -> list[dict[str, object]]:
    """Rows of two branches: milliseconds one after the other and at the same time."""
    channels, extent, _ = BRANCH
    feeds = {"x": np.random.default_rng(1).standard_normal((1, channels, extent, extent)).astype(np.float32)}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        compiled(branches(), place)
        results = {way: dovetail.load(place / "out") for way in ("off", "on")}
        for way, result in results.items():
            result.options.update(threads=1, parallel=way)
        found = fastest({way: lambda one=one: one.run(feeds) for way, one in results.items()}, calls)
        rows.append({"run by": "load", **_pair(found["off"], found["on"])})
        runners = {way: python_runner(place / "python", way) for way in ("off", "on")}
        found = fastest({way: lambda one=one: one.run(feeds) for way, one in runners.items()}, calls)
        rows.append({"run by": "run.py", **_pair(found["off"], found["on"])})
        rows.append({"run by": "C++", **_pair(*(in_cpp(place / "c", feeds, calls, way) for way in ("off", "on")))})
    return rows


def _pair(one: float, both: float) -> dict[str, object]:
    return {"one after the other ms": f"{one / 1e3:.2f}", "at the same time ms": f"{both / 1e3:.2f}",
            "ratio": f"{both / one:.2f}"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--net", nargs="+", choices=(*NETS, "branches"), default=[*NETS, "branches"])
    options = parser.parse_args()
    if chains := [name for name in options.net if name in NETS]:
        table([row(name, options.calls) for name in chains])
    if "branches" in options.net:
        table(parallel_rows(min(options.calls, 200)))


if __name__ == "__main__":
    sys.exit(main())
