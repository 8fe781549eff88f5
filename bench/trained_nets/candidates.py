"""What computes a net: ONNX Runtime, OpenVINO's own mode, ours, and what public converters make of the file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from converters import TOOLS, Wanted

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], dict[str, np.ndarray]]
THREADS = int(os.environ.get("TRAINED_THREADS", os.cpu_count() or 1))


@dataclass(frozen=True)
class Candidate:
    """Something that computes a net.

    Attributes:
        run: All outputs by name.
        region: The only region alone, without what is around it, where there is one.
        notes: What a user is told.
    """

    run: Run
    region: Run | None = None
    notes: tuple[str, ...] = ()


def onnxruntime_float32(model: Path) -> Candidate:
    """ONNX Runtime on the file itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return Candidate(lambda feeds: dict(zip(names, session.run(names, feeds), strict=True)))


def openvino_mode(model: Path, outputs: Iterable[str]) -> Candidate:
    """OpenVINO's own bfloat16 mode on the file itself."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "bf16", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS}
    compiled = openvino.Core().compile_model(str(model), "CPU", config)
    known = set(outputs)
    names = [next(iter(known & output.get_names()), output.get_any_name()) for output in compiled.outputs]
    ports = {name: port for port in compiled.inputs for name in port.get_names()}
    request = compiled.create_infer_request()

    def run(feeds: Feeds) -> dict[str, np.ndarray]:
        # An input that nothing reads has no port.
        given = {name: array for name, array in feeds.items() if name in ports}
        return {name: np.array(array) for name, array in zip(names, request.infer(given).to_tuple(), strict=True)}

    return Candidate(run)


def ours(model: Path, backend: str, **request) -> Candidate:
    """Ours; `Executor.run` is what `CompiledModel.run` calls."""
    import dovetail

    compiled = dovetail.compile(model, [backend], **{"verify": False, **request})
    compiled.options["threads"] = THREADS
    executor = compiled.executor()
    regions = executor.runners
    alone = regions[0].run if len(regions) == 1 else None
    notes = [*compiled.notes(), f"{len(regions)} regions: {', '.join(each.engine for each in regions[:6])}"]
    return Candidate(executor.run, alone, tuple(notes))


def converted(tool: str, model: Path, folder: Path, python: str = sys.executable, limit: float = 300) -> Candidate:
    """What a public converter makes of the file, every float16 result rounded.

    The result is kept in `folder`, and so is what a tool said that failed.

    Raises:
        RuntimeError: It fails, or its result does not load.
    """
    beside = folder / tool.replace(" ", "-")
    target, said = beside / "model.onnx", beside / "failed.txt"
    if not target.exists() and not said.exists():
        beside.mkdir(parents=True, exist_ok=True)
        low = ["--low-io"] if not TOOLS[tool].can(Wanted()) else []
        command = [python, str(Path(__file__).parent.parent / "converters.py"), tool, str(model), str(target), *low]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=beside)
            if done.returncode:
                said.write_text((done.stderr.strip().splitlines() or ["no message"])[-1])
        except subprocess.TimeoutExpired:
            said.write_text(f"not done in {limit:.0f} s")
    if said.exists():
        raise RuntimeError(said.read_text())
    return in_its_own_types(target)


def in_its_own_types(model: Path) -> Candidate:
    """A model on ONNX Runtime's CPU provider, every float16 result really rounded."""
    import dovetail
    import onnx
    import onnx_ir
    from dovetail.plugin import RegionModel
    from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
    from dovetail_runtime.data.batches import fitted

    typed, source = model.with_name("typed.onnx"), onnx_ir.load(model)
    for graph in (source.graph, *source.graph.subgraphs()):
        graph.sort()  # converters append what they insert
    onnx.save(onnx.shape_inference.infer_shapes(onnx_ir.to_proto(source)), typed)
    opened = dovetail.open(typed)
    session = OnnxRuntimeCpu().load(RegionModel(opened), {"threads": THREADS})
    return Candidate(lambda feeds: session.run(fitted(opened, feeds)))
