"""Compile a model in a configuration of the sweep, execute it, and compare the results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .tolerance import Judgment, judge, run, spread

__all__ = ["CONFIGURATIONS", "Truth", "check", "check_engine", "truth"]

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "bf16-fwd": {"backends": ["cpu-bf16"]},
    "float32": {"backends": ["cpu-bf16"], "high": ["*"]},
    "keepio-off": {"backends": ["cpu-bf16"], "keep_io_types": False},
    "mixed": {"backends": ["cpu-bf16", "gpu-fp16"]},
    "solvers": {"backends": ["cpu-bf16"], "solver": "min-cut"},
    "fp16": {"backends": ["gpu-fp16"]},
}
"""Arguments of `dovetail.compile`, by configuration."""


@dataclass(frozen=True)
class Truth:
    """Results of a model on ONNX Runtime in float32, without and with noise."""

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    noisy: list[Mapping[str, np.ndarray]]


def truth(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Truth:
    """Run `model` in float32, undisturbed and with noise."""
    return Truth(model, feeds, run(model, feeds), spread(model, feeds))


def request(configuration: str, number: int) -> tuple[list[str], dict[str, Any]]:
    """Return backends and options of a configuration; those with two variants alternate."""
    options = dict(CONFIGURATIONS[configuration])
    backends = list(options.pop("backends"))
    if number % 2:
        backends.reverse()
        if "solver" in options:
            options["solver"] = "fixpoint"
    return backends, options


def check(known: Truth, configuration: str, number: int = 0, plugins: object = None) -> tuple[str, str]:
    """Return the outcome and a message: `ok`, `wrong`, `refused` (compiling) or `fails` (executing)."""
    import dovetail

    backends, options = request(configuration, number)
    with tempfile.TemporaryDirectory(prefix="dovetail-sweep-") as folder:
        source = Path(folder, "model.onnx")
        onnx.save(known.model, source)
        try:
            compiled = dovetail.compile(source, backends, verify=False, plugins=plugins, **options)
        except dovetail.DovetailError as error:
            return "refused", str(error)
        try:
            got = compiled.run(_fitted(compiled.model, known.feeds))
        except dovetail.DovetailError as error:
            return "fails", str(error)
    return _outcome(known, got)


def check_engine(known: Truth, engine: object) -> tuple[str, str]:
    """Return the outcome of the uncompiled model on an engine."""
    import onnx_ir as ir
    from dovetail.errors import DovetailError
    from dovetail.ir import Model
    from dovetail.plugin import RegionModel

    try:
        session = engine.load(RegionModel(Model(ir.from_proto(known.model))), {"threads": 1})
    except DovetailError as error:
        return "refused", str(error)
    try:
        return _outcome(known, session.run(known.feeds))
    except DovetailError as error:
        return "fails", str(error)


def _fitted(model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    wanted = {value.name: value.dtype.numpy() for value in model.graph.inputs if value.dtype is not None}
    return {
        name: array.astype(wanted[name]) if array.dtype.kind == "f" and name in wanted else array
        for name, array in feeds.items()
    }


def _outcome(known: Truth, got: Mapping[str, np.ndarray]) -> tuple[str, str]:
    judgment = judge(got, known.expected, known.noisy)
    if not judgment.ok:
        judgment = _with_more_noise(known, got, judgment)
    return ("ok", "") if judgment.ok else ("wrong", judgment.why)


def _with_more_noise(known: Truth, got: Mapping[str, np.ndarray], first: Judgment) -> Judgment:
    """Compare again with more and larger noise, to detect values close to a threshold; wrong shapes stay wrong."""
    if "shape" in first.why:
        return first
    noisy = [*known.noisy, *spread(known.model, known.feeds, 24, 2.0**-7)]
    return judge(got, known.expected, noisy)
