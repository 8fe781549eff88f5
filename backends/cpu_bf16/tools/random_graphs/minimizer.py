"""Minimize a model that shows a defect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from .checking import Truth, truth
from .tolerance import run

__all__ = ["minimized"]


def minimized(known: Truth, fails: Callable[[Truth], bool], rounds: int = 6) -> Truth:
    """Return the smallest model found that still fails.

    Outputs are dropped, values are computed beforehand and fed, and nodes that nothing needs go.

    Args:
        known: A model that fails.
        fails: Whether a smaller one still does.
        rounds: How often to go over it.
    """
    best = known
    for _ in range(rounds):
        smaller = best
        for step in (_fewer_outputs, _earlier_ends, _later_starts):
            for candidate in step(smaller):
                if candidate is None:
                    continue
                try:
                    attempt = truth(*candidate)
                    bad = fails(attempt)
                except Exception:  # the cut is not a valid model
                    continue
                if bad:
                    smaller = attempt
                    break
        if smaller is best:
            return best
        best = smaller
    return best


def _fewer_outputs(known: Truth):
    """Yield models with a single output."""
    outputs = known.model.graph.output
    if len(outputs) > 1:
        for output in outputs:
            yield _cut(known, [output.name], [])


def _earlier_ends(known: Truth):
    """Yield models with an inner value as the only output."""
    for node in known.model.graph.node:
        for name in node.output:
            if name and name not in {value.name for value in known.model.graph.output}:
                yield _cut(known, [name], [])


def _later_starts(known: Truth):
    """Yield models with a computed value as an input; the last ones first."""
    outputs = {value.name for value in known.model.graph.output}
    for node in reversed(known.model.graph.node):
        if node.op_type != "Constant" and not outputs & set(node.output):
            yield _cut(known, [value.name for value in known.model.graph.output], [n for n in node.output if n])


def _cut(known: Truth, outputs: list[str], fed: list[str]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]] | None:
    """The part of the model between `fed` and `outputs`, and its inputs."""
    source = known.model
    typed = onnx.shape_inference.infer_shapes(source)
    types = {v.name: v.type.tensor_type.elem_type for v in (*typed.graph.value_info, *typed.graph.output)}
    if not all(types.get(name) for name in fed):
        return None
    values = {}
    if fed:
        probe = onnx.ModelProto()
        probe.CopyFrom(source)
        del probe.graph.output[:]
        probe.graph.output.extend(helper.make_tensor_value_info(name, types[name], None) for name in fed)
        values = run(probe, known.feeds)
    wanted, nodes = set(outputs), []
    for node in reversed(source.graph.node):
        if wanted & set(node.output) - set(fed):
            nodes.append(node)
            wanted |= set(_needs(node))
    wanted |= set(outputs)
    made = onnx.ModelProto()
    made.CopyFrom(source)
    graph = made.graph
    kept = [value for value in source.graph.input if value.name in wanted]
    declared = {value.name: value for value in (*typed.graph.value_info, *typed.graph.output)}
    results = [declared.get(name) for name in outputs]
    if any(value is None for value in results):
        return None
    inputs = [*kept, *(helper.make_tensor_value_info(n, types[n], values[n].shape) for n in fed if n in wanted)]
    constants = [tensor for tensor in source.graph.initializer if tensor.name in wanted]
    for part, content in (
        (graph.node, nodes[::-1]), (graph.input, inputs), (graph.output, results), (graph.initializer, constants)
    ):  # fmt: skip
        del part[:]
        part.extend(content)
    feeds = {**known.feeds, **values}
    return made, {value.name: feeds[value.name] for value in inputs}


def _needs(node: onnx.NodeProto) -> list[str]:
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                found += _needs(inner)
            found += [value.name for value in attribute.g.output]
    return found
