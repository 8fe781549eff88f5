"""Options that remarks suggest can be copied into a shell, whatever nodes and inputs are called."""

import shlex

import dovetail
import onnx
import pytest


def odd_names(model):
    """The model with a blank, a quote and a dollar sign in the names of its input and its nodes."""
    for node in model.graph.node:
        node.name = f"it's {node.name} $HOME"
        node.input[:] = ["my input" if name == "x" else name for name in node.input]
    model.graph.input[0].name = "my input"
    return model


def test_suggested_options_are_words_of_a_shell():
    model = odd_names(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]>
            g (float[N,4,H,8] x) => (float[N,4,H,8] y) <float[4,4,1,1] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
              [conv] c = Conv (x, w)  [tanh] t = Tanh (c)  [soft] s = Softmax (t)  [last] y = Conv (s, w) }"""
        )
    )
    for backend in ("tensorrt", "cpu-bf16", "gpu-fp16", "bpu-int8"):
        try:
            remarks = dovetail.plan(model, backend).remarks
        except dovetail.DovetailError as error:
            assert error.hint
            continue
        for remark in remarks:
            for option in ("--pin ", "--fix-shape ", "--edit "):
                if remark.suggest.startswith(option):
                    words = shlex.split(remark.suggest)
                    assert "=" in words[1] or ":" in words[1], remark.suggest


def test_extents_to_fix_are_quoted():
    model = odd_names(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]>
            g (float[N,4] x) => (float[N,4] y) { [one] y = Relu (x) }"""
        )
    )
    with pytest.raises(dovetail.DovetailError) as caught:
        dovetail.plan(model, "host", fix_shapes={"my inputs": (1, 4)})
    error = caught.value
    assert shlex.split(str(error).split("--fix-shape", 1)[1].split("\n")[0])[0].rstrip(":") == "my inputs:1x4"
