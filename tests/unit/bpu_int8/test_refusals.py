"""Files beside their model: what the vendor's tool refuses, and names that it takes though no node has them."""

import json

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

from .vendor_files import asked, yaml

IMAGES = """<ir_version: 8, opset_import: ["": 11]>
g (float[1,CHANNELS,8,8] x) => (float[1,4,8,8] y) <float[4,CHANNELS,1,1] w> {
  [one] a = Conv (x, w) [div] b = Div (a, a) [soft] y = Softmax <axis = 1> (b) }"""


def model_of(text=IMAGES, channels=3):
    model = open_text(text.replace("CHANNELS", str(channels)), "m")
    weight = np.random.default_rng(0).standard_normal((4, channels, 1, 1)).astype(np.float32)
    model.graph.initializers["w"].const_value = ir.tensor(weight, name="w")
    for node in model.graph:
        node.name = {"div": "block/Div", "soft": "block2/Softmax"}.get(node.name, node.name)
    return model


def refused(tmp_path, inputs, channels):
    with pytest.raises(DovetailError) as error:
        dovetail.plan(model_of(channels=channels), hb_yaml=yaml(tmp_path, inputs=inputs))
    return error.value


@pytest.mark.parametrize(
    ("key", "kind", "channels"),
    [
        ("input_type_rt", "nv12", 1),
        ("input_type_rt", "rgb", 1),
        ("input_type_rt", "yuv444", 4),
        ("input_type_train", "bgr", 1),
        ("input_type_train", "gray", 3),
    ],
)
def test_images_have_the_channels_of_their_type(tmp_path, key, kind, channels):
    error = refused(tmp_path, f"{key}: '{kind}'", channels)
    assert error.message.startswith(f"config.yaml:4: {key}: {kind} is an image of ")
    assert f"and 'x' has {channels}" in error.message and "featuremap" in error.hint


@pytest.mark.parametrize("key", ["mean_value", "scale_value"])
def test_there_is_one_number_or_one_for_each_channel(tmp_path, key):
    error = refused(tmp_path, f"norm_type: data_mean_and_scale\n{key}: 1 2 3", 1)
    assert error.message == f"config.yaml:5: {key}: 3 numbers stand there, and 'x' has 1 channel"
    assert error.hint == "write one number, or one for each channel"


@pytest.mark.parametrize(
    ("inputs", "channels"),
    [
        ("input_type_rt: nv12\ninput_type_train: rgb\nmean_value: 1 2 3", 3),
        ("input_type_rt: nv12\nscale_value: 0.5", 3),
        ("input_type_rt: gray\nmean_value: 1", 1),
        ("input_type_rt: featuremap", 7),
        ("norm_type: no_preprocess\nmean_value: 1 2 3", 1),
        ("input_type_rt: nv12\ninput_layout_train: NHWC", 8),
    ],
)
def test_what_fits_is_taken(tmp_path, inputs, channels):
    if "NHWC" in inputs:
        with pytest.raises(DovetailError, match="'x' has 8"):
            dovetail.plan(model_of(channels=3), hb_yaml=yaml(tmp_path, inputs=inputs))
    else:
        dovetail.plan(model_of(channels=channels), hb_yaml=yaml(tmp_path, inputs=inputs))


def test_more_outputs_than_the_tool_takes_are_refused(tmp_path):
    def many(count):
        outputs = ", ".join(f"float[1,4,8,8] y{at}" for at in range(count))
        nodes = " ".join(f"y{at} = Relu (a)" for at in range(count))
        return model_of(
            f"""<ir_version: 8, opset_import: ["": 11]>
            g (float[1,3,8,8] x) => ({outputs}) <float[4,3,1,1] w> {{ [one] a = Conv (x, w) {nodes} }}"""
        )

    path = yaml(tmp_path, model="onnx_model: 'm.onnx'")
    with pytest.raises(DovetailError) as error:
        dovetail.plan(many(33), hb_yaml=path)
    assert error.value.message.startswith("config.yaml:3: onnx_model: the model has 33 outputs, and the vendor's tool")
    assert "Concat" in error.value.hint
    dovetail.plan(many(32), hb_yaml=path)
    dovetail.plan(many(33), "bpu-int8:march=bayes")  # no file of the vendor, no limit of its tool


@pytest.mark.parametrize(
    ("name", "node"),
    [("block/Div_mul", "block/Div"), ("block/Div_reciprocal", "block/Div"), ("block2/Div_mul", "block2/Softmax")],
)
def test_parts_that_the_optimizer_makes_are_taken_for_their_node(tmp_path, name, node):
    path = yaml(tmp_path, model=f"node_info: {{'{name}': {{'ON': 'CPU'}}}}")
    plan = dovetail.plan(model_of(), hb_yaml=path)
    assert [request["node"] for request in asked(plan)["requests"]] == [node]
    assert any(f"'{name}' exists only after the vendor's optimizer" in why for why, _ in asked(plan)["notes"])


@pytest.mark.parametrize("name", ["block/Dib_mul", "block3/Div_mul", "one_sum"])
def test_other_names_without_a_node_are_errors(tmp_path, name):
    with pytest.raises(DovetailError, match=f"the model has no node '{name}'"):
        dovetail.plan(model_of(), hb_yaml=yaml(tmp_path, model=f"node_info: {{'{name}': {{'ON': 'CPU'}}}}"))


def test_operators_may_be_in_lower_case(tmp_path):
    path = tmp_path / "quant.json"
    path.write_text(json.dumps({"op_config": {"softmax": {"qtype": "int16"}}}))
    plan = dovetail.plan(model_of(), "bpu-int8:march=nash", quant_config=path)
    assert [request["node"] for request in asked(plan)["requests"]] == ["type:Softmax"]
    assert any("'softmax' is taken for Softmax" in why for why, _ in asked(plan)["notes"])
