"""Microseconds of one call of a small result, beside the engines' own calls on the same files.

    python bench/calls.py MODEL... [--backend REQUEST ...] [--calls 2000]

Each result is compiled, saved, and exported. `ours` is `dovetail.InferenceSession` on its folder, `by hand` the
sessions of the export, called one after the other by the few lines below, and `file` ONNX Runtime on `model.onnx` as it
is, where one engine runs the whole of it; each has one thread. Calls take turns, and the fastest fifth of all counts,
since other work on the machine makes calls longer and never shorter. Inputs are drawn at random.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
from dovetail_export.exporting import export
from dovetail_verify.random_inputs import random_batch
from measure import table

Feeds = dict[str, np.ndarray]


def session_of(path: str, settings: dict) -> onnxruntime.InferenceSession:
    """ONNX Runtime's session of a step of an export, with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for key, text in settings["config_entries"].items():
        options.add_session_config_entry(key, text)
    return onnxruntime.InferenceSession(
        path, options, providers=settings["providers"], disabled_optimizers=settings["disabled_optimizers"]
    )


def by_hand(folder: Path, description: dict) -> Callable[[Feeds], object]:
    """The engines' sessions, called without any check."""
    calls = []
    for step in description["steps"]:
        path, settings = str(folder / step["files"][0]["path"]), step["settings"]
        if step["engine"] == "onnxruntime":
            session = session_of(path, settings)
            names = [value.name for value in session.get_outputs()]
            calls.append(lambda values, session=session, names=names, read=step["inputs"]: dict(
                zip(names, session.run(names, {name: values[name] for name in read}))
            ))  # fmt: skip
        else:
            import openvino as ov

            configuration = {**settings["configuration"], "INFERENCE_NUM_THREADS": 1}
            request = ov.Core().compile_model(path, settings["device"], configuration).create_infer_request()

            def run(values: Feeds, request: object = request, settings: dict = settings) -> Feeds:
                for index, name in enumerate(settings["inputs"]):
                    request.set_input_tensor(index, ov.Tensor(values[name], shared_memory=True))
                request.infer()
                return {n: request.get_output_tensor(i).data.copy() for i, n in enumerate(settings["outputs"])}

            calls.append(run)

    def run_all(feeds: Feeds) -> Feeds:
        values = dict(feeds)
        for call in calls:
            values.update(call(values))
        return values

    return run_all


def fastest(runs: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Microseconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(calls + 50):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if number >= 50:
                times[name].append(time.perf_counter() - start)
    return {name: float(np.percentile(found, 20)) * 1e6 for name, found in times.items()}


def measured(model: Path, backend: str, calls: int) -> dict[str, object]:
    """One row."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as place:
        out, shipped = Path(place, "out"), Path(place, "shipped")
        opened = dovetail.open(model)
        feeds = random_batch(opened)
        data = [random_batch(opened, seed) for seed in range(8)]
        dovetail.compile(model, backend, data=data, verify=False).save(out)
        description = export(out, shipped)
        session = dovetail.InferenceSession(out, sess_options=options)
        hand = by_hand(shipped, description)
        runs = {"ours": lambda: session.run(None, feeds), "by hand": lambda: hand(feeds)}
        if [step["engine"] for step in description["steps"]] == ["onnxruntime"]:
            plain = onnxruntime.InferenceSession(str(out / "model.onnx"), options, providers=["CPUExecutionProvider"])
            runs["file"] = lambda: plain.run(None, feeds)
        found = fastest(runs, calls)
    return {
        "model": model.name, "request": backend, "engines": ", ".join(step["engine"] for step in description["steps"]),
        **{f"{name} us": f"{us:.1f}" for name, us in found.items()},
        "ours / by hand": f"{found['ours'] / found['by hand']:.2f}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", nargs="+", default=["host", "cpu-int8:runtime=onnxruntime,weight_range=reduced",
                        "cpu-int8:runtime=onnxruntime", "gpu-fp16", "cpu-bf16", "cpu-int8"])  # fmt: skip
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    rows = [measured(model, backend, options.calls) for model in options.models for backend in options.backend]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table([{name: row.get(name, "") for name in columns} for row in rows])


if __name__ == "__main__":
    main()
