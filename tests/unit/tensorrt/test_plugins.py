"""Plugins of TensorRT are operators that nothing here runs: `--target-only` compiles them, and all else says so."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from onnx import TensorProto, helper, numpy_helper

DETECTIONS = {"n": ("INT32", [1, 1]), "b": ("FLOAT", [1, 10, 4]), "s": ("FLOAT", [1, 10]), "c": ("INT32", [1, 10])}
PLUGINS = {  # inputs, and outputs with their types and extents
    "EfficientNMS_TRT": (["boxes", "scores"], DETECTIONS),
    "BatchedNMS_TRT": (["boxes4", "scores"], {**DETECTIONS, "c": ("FLOAT", [1, 10])}),
    "ROIAlign_TRT": (["features", "rois", "batch"], {"y": ("FLOAT", [5, 8, 7, 7])}),
    "MultiscaleDeformableAttnPlugin_TRT": (["boxes", "scores"], {"y": ("FLOAT", [1, 16, 8])}),
}
NMS = {name: {} for name in PLUGINS} | {
    "EfficientNMS_TRT": {
        "score_threshold": 0.25, "iou_threshold": 0.45, "max_output_boxes": 10, "background_class": -1,
        "score_activation": 0, "box_coding": 0,
    },
}  # fmt: skip
NAMES = [(domain, name) for name in PLUGINS for domain in ("", "TRT")]


def model(domain, name):
    """A convolution whose result is boxes, scores and features for a plugin."""
    inputs, outputs = PLUGINS[name]
    constants = {
        "w": np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32), "flat": np.array([1, 64, 8]),
        "zero": np.array([0]), "four": np.array([4]), "eight": np.array([8]), "two": np.array([2]),
        "square": np.array([1, 64, 1, 4]), "rois": np.zeros((5, 4), np.float32), "batch": np.zeros(5, np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["features"], "conv", pads=[1] * 4),
        helper.make_node("Reshape", ["features", "flat"], ["rows"], "rows"),
        helper.make_node("Slice", ["rows", "zero", "four", "two"], ["boxes"], "boxes"),
        helper.make_node("Reshape", ["boxes", "square"], ["boxes4"], "boxes4"),
        helper.make_node("Slice", ["rows", "four", "eight", "two"], ["scores"], "scores"),
        helper.make_node(name, inputs, list(outputs), "plugin", domain=domain, plugin_version="1", **NMS[name]),
    ]
    needed = set(inputs)
    kept = []
    for node in reversed(nodes):
        if node.name == "plugin" or needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    ends = [
        helper.make_tensor_value_info(key, getattr(TensorProto, kind), shape) for key, (kind, shape) in outputs.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    weights = [numpy_helper.from_array(array, key) for key, array in constants.items() if key in needed]
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(
        helper.make_graph(kept[::-1], "detector", [x], ends, weights), opset_imports=opsets, ir_version=8
    )


@pytest.mark.parametrize(("domain", "name"), NAMES)
@pytest.mark.parametrize("backend", ["tensorrt", "tensorrt:builder=tensorrt,precision=bf16"])
def test_a_plugin_is_compiled_for_the_target_in_floats_that_it_takes(domain, name, backend, tmp_path):
    compiled = dovetail.compile(model(domain, name), backend, target_only=True)
    (plugin,) = [node for node in compiled.plan.nodes if node.name == "plugin"]
    assert (plugin.backend, str(plugin.precision)) == ("tensorrt", "float32")
    compiled.save(tmp_path / "out")
    saved = onnx.load(tmp_path / "out" / "model.onnx")
    nodes = [node for function in saved.functions for node in function.node] + list(saved.graph.node)
    (kept,) = [node for node in nodes if node.op_type == name]
    assert kept.domain == domain and b"1" in [attribute.s for attribute in kept.attribute]


@pytest.mark.parametrize(
    ("how", "says", "way"),
    [
        (
            {"backends": "tensorrt"},
            "EfficientNMS_TRT is an operator of tensorrt alone, and tensorrt is not",
            "--target-",
        ),
        ({"backends": "cpu-bf16"}, "no engine here runs EfficientNMS_TRT", "cut the node out"),
        ({"backends": "tensorrt", "target_only": True, "data": {}}, "no engine runs", "leave --data and goals out"),
    ],
)
def test_without_it_an_error_says_what_helps(how, says, way):
    if "data" in how:
        how["data"] = {"x": np.zeros((4, 3, 8, 8), np.float32)}
    with pytest.raises(DovetailError, match=says) as caught:
        dovetail.compile(model("", "EfficientNMS_TRT"), **how)
    assert "'plugin'" in caught.value.message + caught.value.hint and way in caught.value.hint


def test_an_operator_that_nobody_knows_is_refused_as_before():
    other = model("", "EfficientNMS_TRT")
    other.graph.node[-1].op_type = "EfficientNMS_TRTX"
    with pytest.raises(DovetailError, match="no engine here runs EfficientNMS_TRTX"):
        dovetail.compile(other, "tensorrt", target_only=True)
