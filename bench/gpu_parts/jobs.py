"""The rows of `bench/gpu.py`: each is made in a process of its own, which may crash or hang."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_parts import exported, kinds
from gpu_parts.running import Feeds, first, milliseconds, on_cuda, seconds, session_of, snr

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
ENGINES = ("onnxruntime-cuda", "onnxruntime-ep-webgpu", "onnxruntime-ep-nv-tensorrt-rtx")
"""Engines that run a result of gpu-fp16."""

CHECKS = {"rounded": "onnxruntime-cpu", "half": "half-sums"}
"""What the CPU says beforehand: sums in float32, and sums in float16, which takes long for large nets."""

Row = dict[str, Any]


def machine() -> Iterator[Row]:
    """What is here: the GPU, versions, engines and their devices."""
    import dovetail
    import onnx
    import onnxruntime

    yield {"what": "python", "found": sys.version.split()[0], "about": sys.executable}
    yield {
        "what": "onnxruntime",
        "found": onnxruntime.__version__,
        "about": " ".join(onnxruntime.get_available_providers()),
    }
    yield {"what": "onnx", "found": onnx.__version__, "about": ""}
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        found = f"none ({type(error).__name__})"
    yield {"what": "NVIDIA GPU", "found": found or "none", "about": ""}
    for info in dovetail.backends():
        if info.name in ("gpu-fp16", "tensorrt"):
            for name, ok, why in info.engines:
                yield {"what": name, "found": "available" if ok else "absent", "about": why}


def nets(folder: Path | None) -> list[tuple[str, str]]:
    """Names of nets, and where they are from: the digits, the kinds, and files NAME.onnx with NAME.npz in a folder."""
    trained = sorted(folder.glob("*.onnx")) if folder is not None else []
    own = [(path.stem, str(path)) for path in trained if path.with_suffix(".npz").is_file()]
    return [("digits", "digits"), *((kind, "kind") for kind in kinds.KINDS), *own]


def _opened(name: str, source: str, folder: Path) -> tuple[Path, list[Feeds]]:
    if source == "kind":
        return kinds.made(name, folder)
    if source == "digits":
        images = np.load(DIGITS / "test.npz")["image"]
        return DIGITS / "digits.onnx", [{"image": images[:32]}]
    with np.load(Path(source).with_suffix(".npz")) as arrays:
        return Path(source), [dict(arrays)]


def _expected(path: Path, data: list[Feeds]) -> list[Feeds]:
    session = session_of(path, "CPUExecutionProvider")
    names = [value.name for value in session.get_outputs()]
    return [dict(zip(names, session.run(names, feeds))) for feeds in data]


def net(name: str, source: str) -> Iterator[Row]:
    """Rows of a net: one for every engine that is here, and the checks on the CPU; PyTorch for the kinds."""
    import dovetail
    from dovetail.plugin import load_plugins
    from dovetail.plugin.loading import make_engine
    from dovetail_runtime import RegionExecutor

    registry = load_plugins().registry
    engines = {label: make_engine(registry, label) for label in (*ENGINES, *CHECKS.values())}
    here = [label for label in ENGINES if engines[label].available().ok]
    with tempfile.TemporaryDirectory() as place:
        path, data = _opened(name, source, Path(place))
        expected, base = _expected(path, data), seconds(on_cuda(path, data[0]))
        if base:
            yield {"net": name, "engine": "onnxruntime CUDA, float32", "ms": round(1e3 * base, 3), "ratio": 1.0}
        for accumulate in ("float32", "half"):
            backend = f"gpu-fp16:accumulate={accumulate}"
            compiled = dovetail.compile(path, backend, verify=False, try_engines=bool(here))
            host = [make_engine(registry, "onnxruntime-cpu")]
            said = {}
            for label, engine in CHECKS.items() if source in ("digits", "kind") else [("rounded", CHECKS["rounded"])]:
                executor = RegionExecutor(compiled.model, {"gpu-fp16": [engines[engine]], "host": host})
                said[label] = round(snr(expected, [executor.run(feeds) for feeds in data]), 1)
            for label in here or [None]:
                row: Row = {"net": name, "result": backend, "engine": label or "none here", **said}
                if label:
                    try:
                        executor = RegionExecutor(compiled.model, {"gpu-fp16": [engines[label]], "host": host})
                        row["executed"] = round(snr(expected, [executor.run(feeds) for feeds in data]), 1)
                        row["regions"] = len(executor.runners)
                        spent = seconds(partial(executor.run, data[0]))
                        row["ms"] = round(1e3 * spent, 3) if spent else None
                        row["ratio"] = round(spent / base, 2) if spent and base else None
                    except Exception as error:
                        row["error"] = first(error)
                yield row
        if source == "kind":
            for half in (False, True):
                row = {"net": name, "engine": f"torch, {'float16' if half else 'float32'}"}
                try:
                    run = kinds.in_torch(path, half)
                    row["executed"] = round(snr(expected, [{next(iter(expected[0])): run(feeds)} for feeds in data]), 1)
                    spent = seconds(partial(run, data[0]))
                    row |= {"ms": round(1e3 * spent, 3), "ratio": round(spent / base, 2) if base else None}
                except Exception as error:
                    row["error"] = first(error)
                yield row


def standard(name: str) -> Iterator[Row]:
    """Rows of an exported net; see `exported.rows`."""
    with tempfile.TemporaryDirectory() as place:
        yield from exported.rows(name, Path(place))


def engines(name: str, source: str) -> Iterator[Row]:
    """Rows of a net as TensorRT's engines, in what the backend `tensorrt` can compute in."""
    import dovetail
    from dovetail.plugin import load_plugins
    from dovetail.plugin.loading import make_engine
    from dovetail_runtime import RegionExecutor

    registry = load_plugins().registry
    with tempfile.TemporaryDirectory() as place:
        path, data = _opened(name, source, Path(place))
        expected, base = _expected(path, data), seconds(on_cuda(path, data[0]))
        for precision in ("fp32", "fp16", "bf16", "int8"):
            request = f"tensorrt:precision={precision}"
            row: Row = {"net": name, "result": request, "engine": "tensorrt"}
            try:
                samples = data if precision == "int8" else None
                compiled = dovetail.compile(path, request, data=samples, verify=False)
                used = {
                    "tensorrt": [make_engine(registry, "tensorrt")],
                    "host": [make_engine(registry, "onnxruntime-cpu")],
                }
                executor = RegionExecutor(compiled.model, used)
                row["executed"] = round(snr(expected, [executor.run(feeds) for feeds in data]), 1)
                spent = seconds(partial(executor.run, data[0]))
                row["ms"] = milliseconds(spent)
                row["ratio"] = round(spent / base, 2) if spent and base else None
            except Exception as error:
                row["error"] = first(error)
            yield row


def contexts() -> Iterator[Row]:
    """Contexts (EPContext) of the digits from providers that compile ahead of time, loaded by plain ONNX Runtime."""
    from dovetail_onnxruntime_ep import sessions
    from dovetail_onnxruntime_ep.engines import NvTensorRtRtx

    provider = NvTensorRtRtx.provider
    row: Row = {"context": provider.name}
    try:
        provider.devices()
        with tempfile.TemporaryDirectory() as place:
            target = Path(place) / "context.onnx"
            entries = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": str(target)}
            about = {"provider": provider.name, "library": provider.library, "options": {}, "names": []}
            image = np.load(DIGITS / "test.npz")["image"][:1]
            written = sessions.load(**about, model=str(DIGITS / "digits.onnx"), entries=entries)
            exact = sessions.run(written, {"image": image})
            again = sessions.load(**about, model=target.read_bytes(), entries={})
            found = sessions.run(again, {"image": image})
            row |= {
                "bytes": target.stat().st_size,
                "equal": all(np.array_equal(exact[key], found[key]) for key in exact),
            }
    except Exception as error:
        row["error"] = first(error)
    yield row


def integers() -> Iterator[Row]:
    """Int8 in Q/DQ, as ppl-int8 writes it, by the engines of the GPU beside ONNX Runtime's CPU provider."""
    import dovetail

    images = np.load(DIGITS / "test.npz")["image"]
    with tempfile.TemporaryDirectory() as place:
        compiled = dovetail.compile(DIGITS / "digits.onnx", "ppl-int8", data={"image": images[:64]}, verify=False)
        path = compiled.save(Path(place) / "out")
        path = Path(place) / "out" / "model.onnx"
        feeds = {"image": images[64:96]}
        source = session_of(DIGITS / "digits.onnx", "CPUExecutionProvider")
        exact = [dict(zip(["probabilities"], source.run(["probabilities"], feeds)))]
        on_cpu = session_of(path, "CPUExecutionProvider").run(["probabilities"], feeds)[0]
        yield {
            "int8": "digits",
            "engine": "CPUExecutionProvider",
            "executed": round(snr(exact, [{"probabilities": on_cpu}]), 1),
        }
        for provider in ("CUDAExecutionProvider", "NvTensorRTRTXExecutionProvider", "WebGpuExecutionProvider"):
            row: Row = {"int8": "digits", "engine": provider}
            try:
                session = session_of(path, provider)
                found = session.run(["probabilities"], feeds)[0]
                row |= {"executed": round(snr(exact, [{"probabilities": found}]), 1)}
                row |= {"against the CPU": round(snr([{"p": on_cpu}], [{"p": found}]), 1)}
                row["ms"] = round(1e3 * (seconds(partial(session.run, None, feeds)) or 0), 3)
            except Exception as error:
                row["error"] = first(error)
            yield row


def conformance(cases: int, seconds: float) -> Iterator[Row]:
    """A sample of the conformance suite by the engines that gpu-fp16 has here."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--dovetail-backend",
        "gpu-fp16",
    ]
    command += ["--dovetail-sample", str(cases), "--no-header"] if cases else ["--no-header"]
    if importlib.util.find_spec("xdist"):
        command += ["-n", str(min(12, os.cpu_count() or 1))]
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, env={**os.environ, "PYTHONPATH": ""})
        try:
            ended = f"exit {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            process.kill()
            ended = f"stopped after {seconds:g} s"
        log.seek(0)
        text = log.read()
    counts = {word: len(re.findall(rf" {word}\b", text)) for word in ("PASSED", "FAILED", "SKIPPED", "XFAIL")}
    lines = text.strip().splitlines() or [""]
    yield {
        "conformance": "gpu-fp16",
        "cases": cases,
        "found": ended,
        **counts,
        "last line": lines[-1].strip("= ")[:150],
    }
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            yield {"conformance": "gpu-fp16", "found": line[:150]}
