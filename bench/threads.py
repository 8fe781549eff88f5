"""Calls of one compiled model from four threads, against one OpenVINO request queue over the same compiled model.

    python bench/threads.py [MODEL DATA.npz] [--calls 10000] [--threads 4] [--rounds 5]

The queue gets all inputs from one thread and copies every result out, as a session does. Both take turns; the ratio is
that of the medians. Every answer is compared with what the same inputs gave before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dovetail
import numpy as np
import onnx_ir as ir
import openvino
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16.engine import OpenVinoCpu
from measure import table

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=DIGITS / "digits.onnx")
    parser.add_argument("data", type=Path, nargs="?", default=DIGITS / "test.npz")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    compiled = dovetail.compile(options.model, ["cpu-bf16"], verify=False)
    arrays = dict(np.load(options.data))
    feeds = [{v.name: row[None] for v, row in zip(compiled.model.graph.inputs, rows)}
             for rows in zip(*(arrays[v.name] for v in compiled.model.graph.inputs))]  # fmt: skip
    expected = [compiled.run(feed) for feed in feeds]
    session = OpenVinoCpu().load(RegionModel(compiled.model), {})
    queue = Queue(compiled.model, options.threads)
    ways = {
        "compiled model": lambda: from_threads(compiled.run, feeds, expected, options),
        "session": lambda: from_threads(session.run, feeds, expected, options),
        "request queue": lambda: queue(feeds, expected, options.calls),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    wrong = dict.fromkeys(ways, 0)
    for _ in range(options.rounds):
        for name, way in ways.items():
            seconds, errors = way()
            rates[name].append(options.calls / seconds)
            wrong[name] += errors
    base = statistics.median(rates["request queue"])
    rows = [
        {
            "calls from": name,
            "threads": 1 if name == "request queue" else options.threads,
            "calls": options.calls * options.rounds,
            "wrong answers": wrong[name],
            "rate/queue": round(statistics.median(found) / base, 2),
        }
        for name, found in rates.items()
    ]
    table(rows)


def from_threads(run, feeds, expected, options) -> tuple[float, int]:
    """Seconds, and how many answers are another caller's."""

    def call(number: int) -> dict:
        return run(feeds[number % len(feeds)])

    with ThreadPoolExecutor(options.threads) as threads:
        start = time.perf_counter()
        answers = list(threads.map(call, range(options.calls)))
        seconds = time.perf_counter() - start
    return seconds, different(answers, expected)


def different(answers, expected) -> int:
    return sum(
        not all(np.array_equal(answer[name], right) for name, right in expected[number % len(expected)].items())
        for number, answer in enumerate(answers)
    )


class Queue:
    """OpenVINO's own: requests that are started from one thread and answer in callbacks."""

    def __init__(self, model, jobs: int):
        core = openvino.Core()
        source = core.read_model(ir.to_proto(model.ir).SerializeToString())
        compiled = core.compile_model(source, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
        self.inputs = [port.any_name for port in compiled.inputs]
        self.outputs = [value.name for value in model.graph.outputs]
        self.queue = openvino.AsyncInferQueue(compiled, jobs)

    def __call__(self, feeds, expected, calls: int) -> tuple[float, int]:
        answers: list[dict] = [{}] * calls

        def done(request, number: int) -> None:
            answers[number] = {name: request.get_output_tensor(i).data.copy() for i, name in enumerate(self.outputs)}

        self.queue.set_callback(done)
        start = time.perf_counter()
        for number in range(calls):
            self.queue.start_async([feeds[number % len(feeds)][name] for name in self.inputs], number)
        self.queue.wait_all()
        seconds = time.perf_counter() - start
        return seconds, different(answers, expected)


if __name__ == "__main__":
    main()
