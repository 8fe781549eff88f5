"""Starts of sessions in new processes: `python bench/session_start.py MODEL.onnx ... [--backend NAME] [--turns 5]`.

Per model, seconds of the first start, which compiles, and the least of alternating turns of later starts (from the
cache) and of ONNX Runtime's own loading of the same result; imports are not counted. With a backend whose result ONNX
Runtime does not load, the source is what it loads.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import sys, time, json, onnxruntime
from dovetail import InferenceSession
begun = time.perf_counter(); cpu = time.process_time()
session = InferenceSession(sys.argv[1], backend=sys.argv[2])
print(json.dumps([time.perf_counter() - begun, time.process_time() - cpu]))
"""
THEIRS = """
import sys, time, json, onnxruntime
begun = time.perf_counter(); cpu = time.process_time()
onnxruntime.InferenceSession(sys.argv[1])
print(json.dumps([time.perf_counter() - begun, time.process_time() - cpu]))
"""


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args()


def seconds(code, *words):
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main():
    args = parse()
    heads = ["model", "first start, s", "later starts", "ONNX Runtime on the result", "ratio", "CPU seconds, ratio"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DOVETAIL_CACHE"] = folder
            first = seconds(OURS, model, args.backend)
            result = next(Path(folder).rglob("model.onnx"), model)
            ours, theirs = [], []
            for _ in range(args.turns):
                ours.append(seconds(OURS, model, args.backend))
                theirs.append(seconds(THEIRS, result) or seconds(THEIRS, model))
            later, own = ([min(column) for column in zip(*part)] for part in (ours, theirs))
            cells = [model.name, f"{first[0]:.2f}", f"{later[0]:.3f}", f"{own[0]:.3f}", f"{later[0] / own[0]:.2f}",
                     f"{later[1] / own[1]:.2f}"]  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
