"""Reads the files for the BPU's tools as a program of its own: `model.onnx`, `config.yaml` and `thresholds.json`."""

import json
from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import numpy_helper

from .emitted_files import Integers, Program

HIGHEST = {"int8": 127, "int16": 32767}
ONE_SCALE = ("Add", "Sub", "Mul", "Max", "Min", "LSTM", "GRU", "RNN")
"""Operators whose constants have one scale each."""


def hb_files(folder: Path) -> Program:
    """The thresholds of values and ports; weights have the largest number that is in them, as the tools find it."""
    model = onnx.load(folder / "model.onnx")
    thresholds = json.loads((folder / "thresholds.json").read_text())["nodes"]
    wide = _int16(folder)
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    made, read = {}, {}
    for node in model.graph.node:
        found = thresholds.get(node.name, {"inputs": {}, "outputs": {}})
        for index, threshold in found["outputs"].items():
            made[node.output[int(index)]] = _symmetric(threshold, "int16" if (node.name, "out") in wide else "int8")
        for index, threshold in found["inputs"].items():
            element = "int16" if (node.name, int(index)) in wide else "int8"
            read[node.name, int(index)] = _symmetric(threshold, element)
        if found["inputs"]:
            read |= _of_constants(node, weights, read)
    return Program(model, made, read)


def _int16(folder):
    """The ports of 16 bits, by the names of nodes and the numbers of inputs, or `out`."""
    document = yaml.safe_load((folder / "config.yaml").read_text())
    found = set()
    for name, entry in (document.get("model_parameters", {}).get("node_info") or {}).items():
        for key, value in entry.items():
            if value == "int16":
                found |= {(name, "out")} if key == "OutputType" else {(name, int(key.removeprefix("InputType") or 0))}
    return found


def _symmetric(threshold, element, axis=None):
    scale = np.atleast_1d(np.float32(np.float64(threshold) / HIGHEST[element]))
    return Integers(element, tuple(scale.tolist()), (0,) * len(scale), axis)


def _of_constants(node, weights, read):
    """The integers of a weight and its bias in 32 bits, or of a constant."""
    given = dict(enumerate(node.input))
    if node.op_type in ONE_SCALE:
        constants = {index: weights[value] for index, value in given.items() if value in weights}
        return {(node.name, index): _symmetric(np.abs(array).max(), "int8") for index, array in constants.items()}
    axis = _axis_of_channels(node)
    if axis is None or given[1] not in weights:
        return {}
    weight = weights[given[1]]
    axis %= weight.ndim
    others = tuple(other for other in range(weight.ndim) if other != axis)
    form = _symmetric(np.abs(weight).max(others), "int8", axis)
    found = {(node.name, 1): form}
    if given.get(2):
        scale = np.float32(read[node.name, 0].scale) * np.float32(form.scale)
        found[node.name, 2] = Integers("int32", tuple(scale.tolist()), (0,) * scale.size, 0 if scale.size > 1 else None)
    return found


def _axis_of_channels(node):
    """The axis of a weight along which it has a scale for each extent; None where the node has no weight."""
    turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return {"Conv": 0, "ConvTranspose": 1, "MatMul": -1, "Gemm": 0 if turned else -1}.get(node.op_type)
