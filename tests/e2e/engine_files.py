"""Executes the files that stand for engines: compiled programs, and models with nodes that name engines.

What a file names is read from the files of the result alone. Only an engine for a GPU cannot be executed here: the
function of its region, which is in the result as well, takes its place.
"""

import json
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from .emitted_files import onnxruntime_without_optimizers

CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
ROUNDING = {"float16": 2e-3, "float32": 1e-4}
"""What kernels differ by that compute one node, or several at once."""


def programs(folder, inputs):
    """The outputs of a result with compiled programs, node by node: of `model.onnx` and each region's `net.program`."""
    model = onnx.load(folder / "model.onnx")
    values = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer} | inputs
    for node in model.graph.node:
        is_program = node.op_type == "EPContext"
        given = _program(folder, node, values) if is_program else _alone(model, node, values)
        values.update((name, array) for name, array in zip(node.output, given) if name)
    return {value.name: values[value.name] for value in model.graph.output}


def _program(folder, node, values):
    """The outputs of a program, which takes and gives images with the channels last."""
    path = next(a.s.decode() for a in node.attribute if a.name == "ep_cache_context")
    head, _, content = (folder / path).read_bytes().partition(b"\n")
    assert head.startswith(b"ACME ")
    session = onnxruntime.InferenceSession(zlib.decompress(content), providers=["CPUExecutionProvider"])
    feeds = [_turned(values[name], CHANNELS_FIRST) for name in node.input]
    found = session.run(None, dict(zip([given.name for given in session.get_inputs()], feeds)))
    return [_turned(array, CHANNELS_LAST) for array in found]


def _turned(array, order):
    return array.transpose(order) if array.ndim == 4 else array


def _read(node):
    """What a node and its bodies read, and what bodies compute, which has names that nothing around them has."""
    graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    inner = [_read(other) for graph in graphs for other in graph.node]
    return set(node.input).union(*inner, *({value.name for value in graph.output} for graph in graphs))


def _alone(model, node, values):
    """The outputs of one node, in a model of its own."""
    read = sorted(_read(node) & values.keys())
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
        for name in read
    ]
    ends = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", given, ends)
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    found = onnxruntime_without_optimizers(one, {name: values[name] for name in read})
    return [found.get(name) for name in node.output]


def model_of_engines(folder):
    """`model_ctx.onnx` with the functions of `model.onnx` in the places of engines; None where nothing was built.

    An engine binds values by their names, so those of the node are the names that `engine.json` has. Booleans alone
    have others, which a note says: EPContext has no type for them, and the node takes and gives uint8.
    """
    path = folder / "artifacts" / "tensorrt" / "model" / "model_ctx.onnx"
    if not path.is_file():
        return None
    model, result = onnx.load(path), onnx.load(folder / "model.onnx")
    calls = {node.op_type: node for node in result.graph.node if node.domain == "dovetail.tensorrt"}
    weights = {weight.name: weight for weight in result.graph.initializer}
    known = {weight.name for weight in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type != "EPContext":
            nodes.append(node)
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        name = attributes["partition_name"].decode()
        call, engine = calls[name], json.loads((path.parents[1] / name / "engine.json").read_text())
        _check_engine(path.parent, attributes, engine, path.parents[1] / name)
        held = [value for value in call.input if value in weights and value not in node.input]
        model.graph.initializer.extend(weights[value] for value in dict.fromkeys(held) if value not in known)
        known |= set(held)
        nodes += _in_place_of(node, call, held, engine)
    used = {node.op_type for node in nodes if node.domain == "dovetail.tensorrt"}
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.functions.extend(function for function in result.functions if function.name in used)
    model.opset_import.append(helper.make_opsetid("dovetail.tensorrt", 1))
    return model


def _in_place_of(node, call, held, engine):
    """The call of the function of a region, with the values of the node of its engine."""
    given = [value for value in call.input if value not in held]
    types = {port["name"]: port["type"] for port in (*engine["inputs"], *engine["outputs"])}
    assert len(given) == len(node.input) and len(call.output) == len(node.output)
    made = onnx.NodeProto()
    made.CopyFrom(call)
    before, after = [], []
    for mine, theirs in zip(node.input, given):
        assert types.get(theirs) == "BOOL" or mine == theirs
        if mine != theirs:
            before.append(helper.make_node("Cast", [mine], [f"{mine}_read"], to=onnx.TensorProto.BOOL))
            made.input[list(call.input).index(theirs)] = f"{mine}_read"
    for index, (mine, theirs) in enumerate(zip(node.output, call.output)):
        assert types.get(theirs) == "BOOL" or mine == theirs
        if mine != theirs:
            made.output[index] = f"{mine}_made"
            after.append(helper.make_node("Cast", [f"{mine}_made"], [mine], to=onnx.TensorProto.UINT8))
    return [*before, made, *after]


def _check_engine(folder, attributes, engine, built):
    """The engine that the node has or names is the one that was built."""
    held = attributes["ep_cache_context"]
    content = held if attributes["embed_mode"] else (folder / held.decode()).read_bytes()
    assert content == (built / "engine.plan").read_bytes()
    assert len(content) == engine["size"]


def differences_of_programs(folder, inputs, expected):
    """Outputs that programs and host compute otherwise than the plan's result; floats within rounding."""
    found = programs(folder, inputs)
    return {name: _apart(found[name], array) for name, array in expected.items() if not _alike(found[name], array)}


def differences_of_engines(folder, inputs):
    """Outputs of the model with engines that are not those of `model.onnx`, bit for bit."""
    model = model_of_engines(folder)
    if model is None:
        return {}
    wanted = onnxruntime_without_optimizers(onnx.load(folder / "model.onnx"), inputs)
    given = onnxruntime_without_optimizers(model, inputs)
    names = [value.name for value in model.graph.output if value.name not in inputs]
    return {
        name: _apart(given[name], wanted[name])
        for name in names
        if not np.array_equal(given[name], wanted[name], equal_nan=given[name].dtype.kind == "f")
    }


def _alike(one, other):
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    close = ROUNDING.get(one.dtype.name)
    return np.array_equal(one, other) if close is None else np.allclose(one, other, close, close, equal_nan=True)


def _apart(one, other):
    return (
        f"{one.dtype}{one.shape} for {other.dtype}{other.shape}"
        if one.shape != other.shape
        else int((one != other).sum())
    )
