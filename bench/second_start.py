"""Second starts: a session whose result an earlier program kept, over the engine's own loading of the same file.

    python bench/second_start.py MODEL... [--backend host] [--data FOLDER] [--repeat 7]

Every start is a new process, in turns. `call` is processor time of making the session after everything that it needs is
imported; `process` is that of a whole process that imports and makes it, and `clock` the same by the clock. The peer
loads the kept result with ONNX Runtime alone, or for a backend on OpenVINO with OpenVINO alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import table

OURS = "from dovetail import InferenceSession\n", "InferenceSession({model!r}, backend={backend!r}, data={data!r})"
PEERS = {
    "onnxruntime": ("import onnxruntime\n", "onnxruntime.InferenceSession({result!r})"),
    "openvino": ("import openvino\n", "openvino.Core().compile_model({result!r}, 'CPU')"),
}
CALL = "import time\nstart = time.process_time()\nmade = {make}\nprint(time.process_time() - start)\n"


def started(imports: str, make: str, environment: dict[str, str], before: str = "") -> dict[str, float]:
    """Seconds of a program that makes a session: processor time of the call and the process, and by the clock."""
    before_cpu, before_clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = imports + before + CALL.format(make=make)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    clock = time.perf_counter() - before_clock
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before_cpu.ru_utime - before_cpu.ru_stime
    return {"call": float(done.stdout), "process": cpu, "clock": clock}


def rows_of(model: str, backend: str, data: str | None, peer: str, repeat: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as work:
        environment = {**os.environ, "DOVETAIL_RESULT_CACHE": str(Path(work, "cache"))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed was compiled once
        tiny = Path(__file__).with_name("n200.onnx")
        ours = OURS[0], OURS[1].format(model=model, backend=backend, data=data)
        # Imports happen inside of calls as well: another model is loaded first where the call alone is timed.
        warm = f"InferenceSession({str(tiny)!r}, backend={('cpu-bf16' if peer == 'openvino' else backend)!r})\n"
        started(*ours, environment)
        result = next(Path(work, "cache").glob("*/files/model.onnx"))
        started(*ours, environment, warm)
        theirs = PEERS[peer][0], PEERS[peer][1].format(result=str(result))
        warm_peer = PEERS[peer][1].format(result=str(tiny)) + "\n"
        times: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
        for _ in range(repeat):
            for name, which, before in (("ours", ours, warm), ("peer", theirs, warm_peer)):
                whole = started(*which, environment)
                times[name].append({**whole, "call": started(*which, environment, before)["call"]})
        rows = []
        for what in ("call", "process", "clock"):
            mine, other = (min(one[what] for one in times[name]) for name in ("ours", "peer"))
            rows.append({
                "model": Path(model).stem, "backend": backend, "what": what, "s": mine, f"{peer} s": other,
                "times": mine / other,
            })  # fmt: skip
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--backend", default="host")
    parser.add_argument("--data", help="what integers are calibrated with")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    peer = "openvino" if options.backend.startswith("cpu-") else "onnxruntime"
    table(
        [row for model in options.models for row in rows_of(model, options.backend, options.data, peer, options.repeat)]
    )


if __name__ == "__main__":
    main()
