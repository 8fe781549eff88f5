"""Two backends that accept in int8 what two of PPQ's platforms quantize, and our decisions for them."""

import json
import zipfile
from pathlib import Path

import onnx
from dovetail.passes import Context, Pipeline, Request
from dovetail.planning import get_placement
from dovetail_onnx.opening import open_proto
from dovetail_onnx.signatures import find_signature

RECORDED = Path(__file__).parent / "ppq"
EXPECTED = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))
GRAPHS = EXPECTED["graphs"]
PLATFORMS = tuple(EXPECTED["meta"]["quant_types"])
STRATEGIES = {  # by PPQ's names of its dispatchers
    "conservative": "conservative", "pplnn": "conv-to-conv", "aggresive": "aggressive", "pointwise": "pointwise",
    "allin": "all-in", "perseus": "perseus",
}  # fmt: skip
FILE = """
backend: {name}
device: npu
opset: 11..13
dynamic: accept
precision: {{low: int8, high: float32}}
types: {{q8: {{dtype: int8, scheme: symmetric}}}}
ops:
  {operators}: {{role: active, types: q8}}
place: {{strategy: conservative}}
emit: {{engines: [onnxruntime-cpu]}}
"""
FOLDING = "fold-batchnorm,remove-identity,dead-code,"  # only where PPQ's loader folds, too


def backend_of(platform):
    """The name of the backend that stands for a platform."""
    return platform.lower().replace("_", "-")


def backend_texts():
    """The files of both backends; PPQ's own operators have no place in one."""
    for platform, operators in EXPECTED["meta"]["quant_types"].items():
        known = ", ".join(operator for operator in operators if find_signature("", operator, None))
        yield FILE.format(name=backend_of(platform), operators=known)


def prepared(graph, plugins):
    """A recorded graph in the form that strategies see, but with nothing folded that PPQ keeps."""
    proto, changed = recorded(graph), GRAPHS[graph].get("changed", {})
    _retype(proto, changed.get("retyped", {}))
    model = open_proto(proto, graph)
    steps = f"normalize,{FOLDING if changed else ''}edge-kinds"
    Pipeline.parse(steps, plugins.registry).run(model, Context(plugins=plugins))
    return model


def recorded(graph):
    """A graph as PPQ read it, with zeros for weights."""
    with zipfile.ZipFile(RECORDED / "graphs.zip") as archive:
        return onnx.load_from_string(archive.read(f"{graph}.onnx"))


def _retype(proto, retyped):
    """Make a Conv of each batch norm that follows no product, as PPQ's loader does."""
    typed = onnx.shape_inference.infer_shapes(proto).graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*typed.value_info, *typed.input)}
    sizes = {tensor.name: tensor.dims[0] for tensor in proto.graph.initializer if len(tensor.dims) == 1}
    for index, node in enumerate(proto.graph.node):
        if node.name in retyped:
            channels, weight = sizes[node.input[1]], f"{node.name}_weight"
            shape = [channels, *[1] * (ranks[node.input[0]] - 1)]
            inputs = [node.input[0], weight, node.input[2]]
            conv = onnx.helper.make_node("Conv", inputs, node.output, name=node.name, group=channels)
            proto.graph.node[index].CopyFrom(conv)
            tensor = onnx.helper.make_tensor(weight, onnx.TensorProto.FLOAT, shape, [0.0] * channels)
            proto.graph.initializer.append(tensor)


def decisions(model, platform, strategy, plugins):
    """INT8, SOI (shapes and indices) or FP32 by the name of each node, and the remarks."""
    context = Context(Request.of(backend_of(platform), strategy=strategy), plugins=plugins)
    Pipeline.parse("place", plugins.registry).run(model, context)
    shapes = {remark.node for remark in context.remarks if remark.rule == "shape-arithmetic"}
    found = {}
    for node in model.graph:
        label = "SOI" if node.name in shapes else "FP32"
        found[node.name] = "INT8" if get_placement(node).backend == backend_of(platform) else label
    return found, context.remarks
