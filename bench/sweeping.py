"""What sweeps over nodes share: references, and processes that may end."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx


def references(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[list[np.ndarray] | None]:
    """Return what ONNX Runtime computes without optimizations, and the evaluator of onnx; None where one does not."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    found: list[list[np.ndarray] | None] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for run in (
            lambda: onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds),
            lambda: ReferenceEvaluator(proto).run(None, feeds),
        ):
            try:
                found.append(run())
            except Exception:  # no kernel, or not implemented
                found.append(None)
    return found


def answers(script: str, backend: str, todo: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Let `script --serve BACKEND` run jobs in a process that is started again where it ends; print differences.

    Args:
        script: A program that reads a job a line as JSON, and prints its answer as JSON.
        backend: The backend.
        todo: The jobs; the first three entries say what they are.
    """
    found: list[dict[str, Any]] = []
    while len(found) < len(todo):
        process = subprocess.Popen(
            [sys.executable, script, "--serve", backend], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin and process.stdout
        for job in todo[len(found) :]:
            try:
                print(json.dumps(job), file=process.stdin, flush=True)
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            answer = json.loads(line) if line else {"differs": f"the process ends with {process.wait()}"}
            found.append(answer | {"case": list(job[:3])})
            if "differs" in answer:
                print(backend, *job[:3], answer["differs"], flush=True)
            if not line:
                break
        process.stdin.close()
        process.wait()
    return found


def summary(backend: str, found: Sequence[dict[str, Any]]) -> str:
    """Return one line about the answers for a backend."""
    known = [answer for answer in found if "placed" in answer]
    placed, wrong = sum(bool(answer["placed"]) for answer in known), sum("differs" in answer for answer in found)
    return f"{backend}: {len(known)} cases, {placed} with the operator on it, {wrong} differ"
