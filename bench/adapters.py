"""Measure what a call of `dovetail.InferenceSession` costs beyond the engine that runs the model.

    python bench/adapters.py

A Relu of four numbers, on one thread, so that the engine itself takes microseconds. Rounds alternate, and the fastest
of each counts, because other programs disturb the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import dovetail
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

ROUNDS, CALLS = 40, 200


def tiny() -> onnx.ModelProto:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "tiny", value[:1], value[1:])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def fastest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return microseconds per call, by name."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - begun) / CALLS * 1e6)
    return best


def main() -> None:
    model, feed = tiny(), {"x": np.ones(4, np.float32)}
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    bare = ort.InferenceSession(model.SerializeToString(), settings, ["CPUExecutionProvider"])
    session = dovetail.InferenceSession(model, settings)
    elsewhere = dovetail.InferenceSession(model, backend="cpu-bf16")
    (runner,) = elsewhere.compiled.regions
    found = fastest(
        {
            "onnxruntime.InferenceSession.run": lambda: bare.run(None, feed),
            "dovetail.InferenceSession.run, run whole by ONNX Runtime": lambda: session.run(None, feed),
            "CompiledModel.run of the same": lambda: session.compiled.run(feed),
            "a region on OpenVINO": lambda: runner.run(feed),
            "dovetail.InferenceSession.run, on OpenVINO": lambda: elsewhere.run(None, feed),
        }
    )
    for name, microseconds in found.items():
        print(f"{microseconds:8.2f} us  {name}")


if __name__ == "__main__":
    main()
