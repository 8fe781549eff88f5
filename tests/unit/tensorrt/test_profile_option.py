"""`--profile` and `--workspace`: what is given, and what is refused."""

import dovetail
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail_tensorrt.profiles.bounds import parse_profile

SHAPES = ((1, 4, 8, 8), (2, 4, 8, 8), (4, 4, 8, 8))


def test_a_text_has_a_name_and_three_points():
    name, bounds = parse_profile("in:0:1x3:2x3:4x3")
    assert name == "in:0"
    assert bounds.shapes == ((1, 3), (2, 3), (4, 3))
    assert bounds.texts() == ("1x3", "2x3", "4x3")


def test_numbers_of_an_input_that_is_a_shape():
    _, bounds = parse_profile("s:=1,192:=2,192:=4,192")
    assert bounds.values == ((1, 192), (2, 192), (4, 192))


@pytest.mark.parametrize(
    "text, why",
    [
        ("x", "is not NAME:MIN:OPT:MAX"),
        ("x:1:2", "is not NAME:MIN:OPT:MAX"),
        ("x:1xa:2x3:4x3", "which is no shape"),
        ("x:1x3:2x3:4", "shapes of different rank"),
        ("x:4x3:2x3:8x3", "axis 0 has min 4 and opt 2"),
        ("x:1x3:9x3:8x3", "axis 0 has opt 9 and max 8"),
        ("x:-1x3:1x3:1x3", "has -1 on axis 0"),
    ],
)
def test_what_contradicts_itself_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        parse_profile(text)


@pytest.mark.parametrize(
    "profiles, why",
    [
        ({"image": SHAPES}, "the model has no input 'image'"),
        ({"x": ((1, 4, 8), (2, 4, 8), (4, 4, 8))}, r"'x' has 4 axes \(Nx4x8x8\)"),
        ({"x": ((1, 4, 8, 8), (1, 4, 9, 8), (1, 4, 9, 8))}, r"axis 2 of 'x' is 8 \(Nx4x8x8\), and cannot be 8..9"),
        ({"x": ((4, 4, 8, 8), (2, 4, 8, 8), (1, 4, 8, 8))}, "contradicts itself"),
        ({"x": 4}, "the profile of 'x' is 4"),
        ({"x": {}}, "neither shapes nor values"),
        ([("x", SHAPES)], "is no mapping"),
    ],
)
def test_a_profile_fits_the_model(convolution, profiles, why):
    with pytest.raises(DovetailError, match=why):
        dovetail.plan(convolution(), "tensorrt", profiles=profiles)


def test_another_backend_has_no_profile(convolution):
    for ask in (dovetail.plan, dovetail.compile):
        with pytest.raises(UsageError, match="--profile is for engines of TensorRT, and no backend makes any"):
            ask(convolution(), "cpu-bf16", profiles={"x": SHAPES})


def test_an_extent_of_one_name_has_one_range():
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[N,4] x, float[N,4] z) => (float[N,4] y) { y = Add(x, z) }'
    )
    profiles = {"x": ((1, 4), (2, 4), (4, 4)), "z": ((1, 4), (2, 4), (8, 4))}
    with pytest.raises(DovetailError, match="extent 'N' is 1:2:4 in 'x' and 1:2:8 in 'z'"):
        dovetail.compile(model, "tensorrt", profiles=profiles)


@pytest.mark.parametrize("text, size", [("1GiB", 1 << 30), ("256MiB", 1 << 28), ("4096", 4096), ("2k", 2048)])
def test_a_workspace_has_a_unit(convolution, text, size):
    compiled = dovetail.compile(convolution("2"), "tensorrt", workspace=text)
    assert compiled.plan.summary["options"]["tensorrt"]["workspace"] == size


@pytest.mark.parametrize("text", ["much", "0", "-1", "1TiB"])
def test_a_workspace_is_a_number_of_bytes(convolution, text):
    with pytest.raises(UsageError, match="is no number of bytes"):
        dovetail.plan(convolution(), "tensorrt", workspace=text)


def test_the_command_line_says_it_in_one_line(convolution, tmp_path, capsys):
    import onnx

    onnx.save(convolution(), tmp_path / "m.onnx")
    asked = ["plan", str(tmp_path / "m.onnx"), "--backend", "tensorrt"]
    assert main([*asked, "--profile", "x:4x4x8x8:2x4x8x8:1x4x8x8"]) == 2
    assert "contradicts itself" in capsys.readouterr().err
    assert main([*asked, "--profile", "x:1x4x8x8:2x4x8x8:4x4x8x8", "--profile", "x:1x4x8x8:2x4x8x8:4x4x8x8"]) == 2
    assert "gives 'x' twice" in capsys.readouterr().err
    assert main([*asked, "--profile", "x:1x4x8x8:2x4x8x8:4x4x8x8", "--workspace", "1GiB"]) == 0


def test_a_model_whose_nodes_are_out_of_order_has_profiles_too(convolution):
    model = convolution()
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert dovetail.plan(model, "tensorrt", profiles={"x": SHAPES}).nodes
