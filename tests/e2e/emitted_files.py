"""Executes files that emitters wrote, as a vendor's compiler would: from the files alone.

A file says which values are held in integers; here each is rounded where it is made or read, and ONNX Runtime computes
the operators between, with its optimizers switched off. So a value that a file does not name, or a node that it lacks,
shows as another number.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2**31), 2**31 - 1)}

ROUNDING = (
    ("Div", "scale"), ("Round", ""), ("Add", "zero"), ("Max", "low"), ("Min", "high"),
    ("Sub", "zero"), ("Mul", "scale"),
)  # fmt: skip


@dataclass(frozen=True)
class Integers:
    """A quantized form: real = (integer - zero point) * scale."""

    element: str
    scale: tuple
    zero_point: tuple
    axis: int | None = None

    def shaped(self, numbers, rank):
        array = np.asarray(numbers)
        return array.reshape([-1 if axis == self.axis else 1 for axis in range(rank)] if self.axis is not None else ())

    def of(self, array):
        """The integers that hold an array of floats."""
        scale = self.shaped(np.float32(self.scale), array.ndim)
        low, high = LIMITS[self.element]
        found = np.rint(array.astype(np.float32) / scale).astype(np.float64) + self.shaped(self.zero_point, array.ndim)
        return np.clip(found, low, high).astype(self.element)

    def floats(self, integers):
        scale = self.shaped(np.float32(self.scale), integers.ndim)
        zero = self.shaped(self.zero_point, integers.ndim)
        return (integers.astype(np.int64) - zero).astype(np.float32) * scale


@dataclass(frozen=True)
class Program:
    """What files say: a model in floats, and the integers of its values.

    Attributes:
        model: The model.
        made: The form in which a value is made, by the name of the value.
        read: The form in which an input is read, by the name of the node and the number of the input.
    """

    model: onnx.ModelProto
    made: dict[str, Integers]
    read: dict[tuple[str, int], Integers]

    def run(self, inputs):
        """Every value that nodes compute, by name, as they compute it: before it is rounded."""
        return onnxruntime_without_optimizers(_rounding(self), inputs)


def acme_files(folder: Path) -> Program:
    """`region.onnx` and `parameters.json` of the example for an int8 accelerator."""
    model = onnx.load(folder / "region.onnx")
    entries = json.loads((folder / "parameters.json").read_text())["values"]
    nodes = {node.name: node for node in model.graph.node}
    made, read = {}, {}
    for value, forms in entries.items():
        for form in forms:
            element, axis = re.match(r"(\w+)\[[\w-]+(?:,axis=(-?\d+))?\]", form["format"]).groups()
            integers = Integers(element, form["scale"], form["zero_point"], None if axis is None else int(axis))
            if form["made_by"] and element != "int32":
                made[value] = integers
            for place in form["read_by"]:
                node, _, port = place.rpartition(":")
                if node in nodes:
                    read[node, index_of(nodes[node], port)] = integers
    return Program(model, made, read)


def ppl_json(folder: Path) -> Program:
    """`model.onnx` and `ppl.json`: one form per value, for the nodes that the file lists; PPL makes biases itself."""
    model = onnx.load(folder / "model.onnx")
    document = json.loads((folder / "ppl.json").read_text())
    weights = {weight.name for weight in model.graph.initializer}
    forms = {
        name: Integers(
            "int8", np.atleast_1d(info["scale"]), np.atleast_1d(info["zero_point"]), 0 if info["per_channel"] else None
        )
        for name, info in document["quant_info"].items()
    }
    made, read = {}, {}
    for node in model.graph.node:
        if node.name not in document["op_info"]:
            continue
        made |= {value: forms[value] for value in node.output if value in forms}
        read |= {(node.name, index): forms[value] for index, value in enumerate(node.input) if value in forms}
        if node.op_type in ("Conv", "Gemm") and len(node.input) == 3 and node.input[2] in weights:
            scale = np.float32(forms[node.input[0]].scale) * np.float32(forms[node.input[1]].scale)
            read[node.name, 2] = Integers("int32", scale, np.zeros_like(scale, int), 0 if scale.size > 1 else None)
    return Program(model, made, read)


def index_of(node, port):
    """The number of an input by the name of its port."""
    if found := re.fullmatch(r"in(\d+)", port):
        return int(found.group(1))
    return [formal.name for formal in onnx.defs.get_schema(node.op_type, 11).inputs].index(port)


def onnxruntime_without_optimizers(model: onnx.ModelProto, inputs) -> dict[str, np.ndarray]:
    """Every value that the nodes of a model compute, by name."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    names = [name for node in exposed.graph.node for name in node.output if name]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(exposed.SerializeToString(), options)
    wanted = {value.name for value in session.get_inputs()}
    return dict(zip(names, session.run(names, {name: inputs[name] for name in wanted})))


def _rounding(program: Program) -> onnx.ModelProto:
    """The model with what rounds values to their integers between its nodes."""
    model = onnx.ModelProto()
    model.CopyFrom(program.model)
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    nodes, rounded = [], {}
    fresh: Callable[[str], str] = lambda name: f"{name}__{len(nodes)}"  # noqa: E731

    def through(value, integers):
        key = (value, integers.element, tuple(np.ravel(integers.scale)), integers.axis)
        if key in rounded:
            return rounded[key]
        name = fresh(value)
        if value in weights:
            model.graph.initializer.append(numpy_helper.from_array(integers.floats(integers.of(weights[value])), name))
        else:
            (scale,), (zero,) = integers.scale, integers.zero_point
            low, high = LIMITS[integers.element]
            numbers = {"scale": scale, "zero": zero, "low": low, "high": high}
            for what, number in numbers.items():
                model.graph.initializer.append(numpy_helper.from_array(np.float32(number), f"{name}_{what}"))
            steps = [
                ("Div", "scale"),
                ("Round", None),
                ("Add", "zero"),
                ("Max", "low"),
                ("Min", "high"),
                ("Sub", "zero"),
                ("Mul", "scale"),
            ]
            for at, (op_type, number) in enumerate(steps):
                given = [value if at == 0 else f"{name}_{at - 1}", *([f"{name}_{number}"] if number else [])]
                nodes.append(helper.make_node(op_type, given, [name if at == len(steps) - 1 else f"{name}_{at}"]))
        rounded[key] = name
        return name

    for node in program.model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for index, value in enumerate(node.input):
            held = through(value, program.made[value]) if value in program.made else value
            wanted = program.read.get((node.name, index))
            if wanted is not None and wanted != program.made.get(value):
                held = through(held, wanted)
            copy.input[index] = held
        _rename_in_bodies(copy, lambda value: through(value, program.made[value]) if value in program.made else value)
        nodes.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _rename_in_bodies(node, new: Callable[[str], str]) -> None:
    """Let the bodies of a node read other values; what they compute has other names than what is around them."""
    for graph in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        for end in graph.output:
            end.name = new(end.name)
        for inner in graph.node:
            for index, value in enumerate(inner.input):
                inner.input[index] = new(value)
            _rename_in_bodies(inner, new)
