"""Random shapes: names of extents are compared and read as arithmetic, never run, and every name is legal."""

from pathlib import Path

import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin.loading import open_any
from dovetail_verify.random_inputs import random_shapes
from onnx import TensorProto, helper


def inputs(**shapes):
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in shapes]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", declared, outputs), opset_imports=[helper.make_opsetid("", 22)]
    )
    model.ir_version = 10
    return list(open_any(model).graph.inputs)


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ({"x": ["N", 3, "H", "W"]}, {"x": (1, 3, 16, 16)}),
        ({"x": ["p2o.DynamicDimension.0", 3, 48, "p2o.DynamicDimension.1"]}, {"x": (1, 3, 48, 16)}),
        ({"x": ["batch size", "?"], "k": ["batch size"]}, {"x": (1, 16), "k": (1,)}),
        ({"x": ["N", "S"], "mask": ["N", "S"]}, {"x": (1, 16), "mask": (1, 16)}),
        ({"x": [1, "N"], "k": ["N"]}, {"x": (1, 1), "k": (1,)}),  # a batch wherever it stands
        ({"ids": [1, "S"], "mask": [1, "past + S"], "past": [1, 2, "past", 8]},
         {"ids": (1, 16), "mask": (1, 32), "past": (1, 2, 16, 8)}),
        ({"x": [4, "H"], "half": [4, "H//2"], "twice": [4, "2*(H - 1)"]},
         {"x": (4, 16), "half": (4, 8), "twice": (4, 30)}),
        ({"x": ["N", 4], "half": ["N/2", 4]}, {"x": (1, 4), "half": (1, 4)}),  # half a sample is none
        ({"x": [2, "2**2**2**2**2**9"]}, {"x": (2, 16)}),
        ({"x": [2, "9" * 5000]}, {"x": (2, 16)}),
        ({"x": [2, "99999*99999"]}, {"x": (2, 16)}),
        ({"x": [2, "H - H"], "y": [2, "1/0"], "z": [2, "("], "w": [2, "-"]},
         {"x": (2, 16), "y": (2, 16), "z": (2, 16), "w": (2, 16)}),
        ({"x": [-1, 4]}, {"x": (1, 4)}),
    ],
)  # fmt: skip
def test_shapes(shapes, wanted):
    assert random_shapes(inputs(**shapes), {}) == wanted


def test_the_users_shapes_hold_everywhere():
    found = random_shapes(inputs(x=["N", 3, "H", "W"], size=["N", 2], grid=["H", "W"]), {"x": (2, 3, 48, 320)})
    assert found == {"x": (2, 3, 48, 320), "size": (2, 2), "grid": (48, 320)}


CODE = "__import__('pathlib').Path('PWNED').touch() or 4"


@pytest.mark.parametrize(
    "name", [CODE, "lambda: 4", "[].append(4)", "f'{4}'", "a.__class__", "N" * 300, "\x1b[31m", ""]
)
def test_the_name_of_an_extent_is_never_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert random_shapes(inputs(x=[name, 4]), {}) == {"x": (1, 4)}
    assert not Path("PWNED").exists()


def test_no_command_runs_it(tmp_path, monkeypatch, capsys):
    from dovetail.cli.main import main

    monkeypatch.chdir(tmp_path)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [CODE if name == "x" else "N", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), "evil.onnx")
    assert main(["compile", "evil.onnx", "--backend", "host", "--verify", "-o", "out"]) == 0
    assert main(["verify", "evil.onnx", "out"]) == 0
    assert "verified on one batch of random inputs (x 1x4)" in capsys.readouterr().out
    assert not Path("PWNED").exists()


def test_a_shape_for_what_is_no_input():
    import dovetail

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with pytest.raises(DovetailError, match="a shape is given for 'image', which is no input"):
        dovetail.compile(model, "host", verify=True, input_shapes={"image": (1, 4)})
