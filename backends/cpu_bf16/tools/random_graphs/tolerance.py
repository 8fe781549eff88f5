"""The tolerance of results under rounding.

A graph amplifies rounding errors in ways that no single number describes: a comparison may flip, a position may change.
So the model is run several times in float32 with noise of the size of a rounding error behind every float value, and
every element of a result may differ from the undisturbed one by a few times what the noise did to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

__all__ = ["Judgment", "judge", "spread"]

BFLOAT16 = 2.0**-8
"""Relative rounding error of bfloat16: half the spacing of neighboring numbers."""
TIMES = 4.0
FLOOR = 0.02  # of the largest magnitude of the result


class Judgment(NamedTuple):
    """Whether a result is right.

    Attributes:
        ok: It is.
        why: What is wrong with it.
        worst: The largest error relative to what is allowed; above one is wrong.
    """

    ok: bool
    why: str
    worst: float


Results = Mapping[str, np.ndarray]


def run(model: onnx.ModelProto, feeds: Results) -> dict[str, np.ndarray]:
    """The outputs of `model` on ONNX Runtime's CPU provider."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds))))


def spread(model: onnx.ModelProto, feeds: Results, samples: int = 6, size: float = BFLOAT16) -> list[Results]:
    """The outputs of `model` in `samples` runs with noise of relative size `size` behind every float value."""
    found = []
    for sample in range(samples):
        try:
            found.append(run(disturbed(model, sample, size), feeds))
        except Exception:  # the noise left the domain of an operator
            continue
    return found


def disturbed(model: onnx.ModelProto, sample: int, size: float) -> onnx.ModelProto:
    """`model` with noise behind every float32 value that it computes or reads, in bodies too.

    The noise of x is `x * size * sin(1e4 * x + phase)`: it needs no shape, and neighboring numbers get other noise.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    rng = np.random.default_rng(sample)
    typed = onnx.shape_inference.infer_shapes(model)
    for graph, inferred in zip(_graphs(made.graph), _graphs(typed.graph)):
        _disturb(graph, _floats(inferred), size, rng)
    return made


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """A graph and all bodies in it; the outer ones last, so that a body is changed before its node is copied."""
    found = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _graphs(attribute.g)
    return [*found, graph]


def _floats(graph: onnx.GraphProto) -> set[str]:
    values = [*graph.input, *graph.value_info, *graph.output]
    found = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    return found | {t.name for t in graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims)}


def _disturb(graph: onnx.GraphProto, floats: set[str], size: float, rng: np.random.Generator) -> None:
    tag = f"{graph.name}.{rng.integers(1 << 30)}"
    given = [value.name for value in (*graph.input, *graph.initializer) if value.name in floats]
    results = [name for node in graph.node for name in node.output if name in floats]
    constants = [name for node in graph.node if node.op_type == "Constant" for name in node.output]
    leaving = {value.name for value in graph.output}
    new, nodes = {}, []
    for name in given:
        nodes += _noise(name, f"{name}/noisy/{tag}", size, rng)
        new[name] = f"{name}/noisy/{tag}"
    moved = {}
    for node in graph.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        _rename(copied, new)
        nodes.append(copied)
        for index, name in enumerate(node.output):
            if name not in results or name in constants:
                continue
            if name in leaving:
                copied.output[index] = f"{name}/exact/{tag}"
                nodes += _noise(copied.output[index], name, size, rng)
            else:
                moved[name] = new[name] = f"{name}/noisy/{tag}"
                nodes += _noise(name, new[name], size, rng)
    for value in graph.output:  # an input that is also an output
        value.name = new.get(value.name, value.name)
    del graph.node[:]
    graph.node.extend(nodes)


def _rename(node: onnx.NodeProto, new: Mapping[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = new.get(name, name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            own = {value.name for value in (*attribute.g.input, *attribute.g.initializer)}
            own |= {name for inner in attribute.g.node for name in inner.output}
            captured = {old: name for old, name in new.items() if old not in own}
            for inner in attribute.g.node:
                _rename(inner, captured)
            for value in attribute.g.output:
                value.name = captured.get(value.name, value.name)


def _noise(source: str, target: str, size: float, rng: np.random.Generator) -> list[onnx.NodeProto]:
    def number(name: str, value: float) -> onnx.NodeProto:
        tensor = helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        return helper.make_node("Constant", [], [name], value=tensor)

    part = [f"{target}/{i}" for i in range(8)]
    return [
        number(part[0], 1e4 * (1 + rng.random())),
        number(part[1], rng.uniform(0, 6.28)),
        number(part[2], size),
        helper.make_node("Mul", [source, part[0]], [part[3]]),
        helper.make_node("Add", [part[3], part[1]], [part[4]]),
        helper.make_node("Sin", [part[4]], [part[5]]),
        helper.make_node("Mul", [part[5], part[2]], [part[6]]),
        helper.make_node("Mul", [part[6], source], [part[7]]),
        helper.make_node("Add", [part[7], source], [target]),
    ]


def judge(got: Results, expected: Results, noisy: Sequence[Results]) -> Judgment:
    """Whether `got` is `expected` within what noise does to it."""
    worst = 0.0
    for name, right in expected.items():
        result = got.get(name)
        if result is None:
            return Judgment(False, f"there is no '{name}'", np.inf)
        samples = [run_[name] for run_ in noisy]
        error = _error(np.asarray(result), np.asarray(right), samples)
        if isinstance(error, str):
            return Judgment(False, f"'{name}' {error}", np.inf)
        if error > 1:
            return Judgment(False, f"'{name}' is off by {error:.3g} times what rounding explains", error)
        worst = max(worst, error)
    return Judgment(True, "", worst)


def _error(result: np.ndarray, right: np.ndarray, samples: list[np.ndarray]) -> float | str:
    """The largest error relative to what is allowed, or what is wrong with the shape."""
    same = [sample for sample in samples if sample.shape == right.shape]
    if result.shape != right.shape:
        moves = len(same) < len(samples) and result.ndim == right.ndim
        return 0.0 if moves else f"has shape {list(result.shape)} instead of {list(right.shape)}"
    if not right.size:
        return 0.0
    if right.dtype.kind in "biu":
        steady = np.all([sample == right for sample in same], axis=0) if same else np.ones(right.shape, bool)
        wrong = (result.astype(np.int64) != right.astype(np.int64)) & steady
        return 0.0 if not wrong.any() else 1.0 + float(wrong.mean())
    right, result = right.astype(np.float64), result.astype(np.float64)
    moved = np.max([np.abs(sample - right) for sample in same], axis=0) if same else np.zeros(right.shape)
    moved = np.where(np.isfinite(moved), moved, np.inf)
    finite = np.isfinite(right)
    largest = np.abs(right[finite]).max(initial=0)
    usual = np.quantile(moved[np.isfinite(moved)], 0.9) if np.isfinite(moved).any() else 0
    allowed = TIMES * np.maximum(moved, usual) + FLOOR * largest + 1e-6
    error = np.where(finite, np.abs(result - right), np.where(np.isnan(right), ~np.isnan(result), result != right))
    error = np.where(np.isnan(error), np.inf, error)
    with np.errstate(invalid="ignore"):
        relative = np.where(np.isinf(allowed), 0.0, error / allowed)
    return float(relative.max())
