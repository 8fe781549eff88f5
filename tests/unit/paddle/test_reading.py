"""Programs and parameters are read without Paddle; what is malformed is one message that names the place."""

import json

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_paddle.legacy.reading import read_program

from .paddle_files import Block, Legacy, parameters, pir_input, pir_op, pir_parameter, pir_result, save_pir


def dense() -> Legacy:
    """`y = relu(x @ w)`"""
    program = Legacy().feed("x", (-1, 3)).parameter("w", np.arange(6, dtype=np.float32).reshape(3, 2))
    program.var("h", (-1, 2)).var("y", (-1, 2))
    program.op("matmul_v2", {"X": ["x"], "Y": ["w"]}, {"Out": ["h"]}, trans_x=False, trans_y=False)
    stack = ['  File "/usr/lib/python3/site-packages/paddle/nn/layer.py", line 9', '  File "/home/me/net.py", line 12']
    return program.op("relu", {"X": ["h"]}, {"Out": ["y"]}, stack=stack).fetch("y")


def refused(path) -> str:
    with pytest.raises(DovetailError) as caught:
        dovetail.open(path)
    return f"{caught.value.message} -- {caught.value.hint}"


def test_a_legacy_program_prints(tmp_path):
    assert str(read_program(dense().save(tmp_path))) == (
        "program version 2006002\n"
        "block 0 {\n"
        "  %h: float32[?,2]\n"
        "  param %w: float32[3,2]\n"
        "  %x: float32[?,3]\n"
        "  %y: float32[?,2]\n"
        "  (Out: %x) = feed(X: %feed) {col=0}\n"
        "  (Out: %h) = matmul_v2(X: %x, Y: %w) {trans_x=false, trans_y=false}\n"
        "  (Out: %y) = relu(X: %h) {}  # /home/me/net.py:12\n"
        "  (Out: %fetch) = fetch(X: %y) {col=0}\n"
        "}\n"
    )


def test_a_program_opens_as_a_pd_op_graph(tmp_path):
    model = dovetail.open(dense().save(tmp_path))
    assert [(node.domain, node.op_type) for node in model.graph] == [
        ("pd_op", "matmul"), ("pd_op", "relu"), ("pd_op", "fetch"),
    ]  # fmt: skip
    assert model.interface() == (["x"], ["y"])
    assert "pd_op.matmul <transpose_x = 0, transpose_y = 0> (x, w)" in model.text()


def test_parameters_stay_in_the_file(tmp_path):
    array = np.zeros((256, 256), np.float32)
    program = Legacy().feed("x", (1, 256)).parameter("w", array).var("y", (1, 256))
    program.op("matmul_v2", {"X": ["x"], "Y": ["w"]}, {"Out": ["y"]}).fetch("y")
    model = dovetail.open(program.save(tmp_path))
    held = model.graph.initializers["w"].const_value.numpy()
    assert not held.flags.owndata and not held.flags.writeable


def test_a_program_of_paddle_3_opens(tmp_path):
    ops = [
        pir_parameter(1, "w", "f32", (2,)), pir_input(2, "x", "f32", (-1, 2)),
        pir_op("1.add", [2, 1], [(3, "f32", (-1, 2))], [("struct_name", "0.a_str", "/Head/")]),
        pir_result(3, 4, "f32", (-1, 2)),
    ]  # fmt: skip
    model = dovetail.open(save_pir(tmp_path, ops, {"w": np.ones(2, np.float32)}))
    assert [node.op_type for node in model.graph] == ["add", "fetch"]
    assert model.graph[0].metadata_props["paddle.struct_name"] == "/Head/"
    result = dovetail.compile(model, backends=["host"]).run({"x": np.zeros((3, 2), np.float32)})
    np.testing.assert_array_equal(result["fetch_name_0"], np.ones((3, 2)))


@pytest.mark.parametrize("kept", [0, 3, 20, 40])
def test_truncated_parameters_name_the_tensor(tmp_path, kept):
    path = dense().save(tmp_path)
    file = path.with_suffix(".pdiparams")
    file.write_bytes(file.read_bytes()[:kept])
    assert "net.pdiparams: parameter 'w' is cut short" in refused(path)


def test_parameters_that_are_left_over(tmp_path):
    path = dense().save(tmp_path)
    with path.with_suffix(".pdiparams").open("ab") as file:
        file.write(b"more")
    assert "4 bytes follow the last of the program's 1 parameters" in refused(path)


def test_parameters_of_another_program(tmp_path):
    path = dense().save(tmp_path)
    path.with_suffix(".pdiparams").write_bytes(parameters({"w": np.zeros((2, 3), np.float32)}))
    assert "parameter 'w' is float32[2,3], but the program declares float32[3,2]" in refused(path)


def test_parameters_are_missing(tmp_path):
    path = dense().save(tmp_path)
    path.with_suffix(".pdiparams").unlink()
    assert "net.pdiparams does not exist, and the program needs it for 1 parameters" in refused(path)


def test_a_program_that_is_cut_short(tmp_path):
    path = dense().save(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    assert "net.pdmodel is not a Paddle program, or it is cut short" in refused(path)


@pytest.mark.parametrize("content", [b"", b"hello, world", bytes(100)])
def test_a_file_that_is_no_program(tmp_path, content):
    path = tmp_path / "net.pdmodel"
    path.write_bytes(content)
    assert "net.pdmodel is" in refused(path)


def test_a_program_of_a_newer_paddle(tmp_path):
    message = refused(Legacy(version=7_001_000).save(tmp_path))
    assert "was written by Paddle 7.1.0, which is newer than what is read here" in message
    assert "is of version 9 of Paddle's format" in refused(save_pir(tmp_path, [], version=9))


def test_blocks_that_run_themselves(tmp_path):
    program = dense()
    program.block(parent=0)
    program.op("while", {}, {}, in_block=1, sub_block=Block(1))
    assert "block 1 runs itself" in refused(program.save(tmp_path))


def test_blocks_that_are_nested_too_deeply(tmp_path):
    program = dense()
    for parent in range(3000):
        inner = program.block(parent=parent)
        program.op("while", {}, {}, in_block=parent, sub_block=Block(inner))
    assert "blocks are nested deeper than 64 levels" in refused(program.save(tmp_path))


def test_blocks_that_lie_in_themselves(tmp_path):
    program = dense()
    program.block(parent=2)
    program.block(parent=1)
    assert "lies in itself" in refused(program.save(tmp_path))


def test_a_block_that_does_not_exist(tmp_path):
    program = dense().op("while", {}, {}, sub_block=Block(7))
    assert "attribute 'sub_block' of while, operator 4 of block 0, names block 7" in refused(program.save(tmp_path))


def test_an_operator_of_wrong_arity(tmp_path):
    program = Legacy().feed("x", (2,)).var("y", (2,)).op("elementwise_add", {"X": ["x"]}, {"Out": ["y"]}).fetch("y")
    message = refused(program.save(tmp_path))
    assert "operator 1 of block 0, 'elementwise_add' has no input 'y'" in message


def test_an_attribute_of_the_wrong_type(tmp_path):
    program = Legacy().feed("x", (2, 2)).var("y", (2, 2))
    program.op("softmax", {"X": ["x"]}, {"Out": ["y"]}, axis=[1]).fetch("y")
    message = refused(program.save(tmp_path))
    assert "operator 1 of block 0, 'softmax' has a list as attribute 'axis', which is int" in message


def test_a_variable_that_nothing_writes(tmp_path):
    program = Legacy().feed("x", (2,)).var("z", (2,)).var("y", (2,))
    program.op("relu", {"X": ["z"]}, {"Out": ["y"]}, stack=['File "net.py", line 3']).fetch("y")
    message = refused(program.save(tmp_path))
    assert "'relu', made at net.py:3, reads 'z', which nothing has written" in message


def test_a_json_that_is_no_program(tmp_path):
    path = tmp_path / "net.json"
    path.write_text('{"a": 1}')
    assert "net.json is not a Paddle program: it has no mark 'pir'" in refused(path)
    path.write_text('{"a": 1')
    assert "net.json:1:" in refused(path)


def test_a_json_with_a_depth_bomb(tmp_path):
    path = tmp_path / "net.json"
    path.write_text("[" * 200_000)
    assert "nested too deeply" in refused(path)


def test_a_json_with_a_number_bomb(tmp_path):
    path = tmp_path / "net.json"
    path.write_text('{"base_code": {"magic": "pir", "version": ' + "9" * 100_000 + "}}")
    assert "a number of more than 300 digits" in refused(path)


def test_impossible_extents(tmp_path):
    ops = [pir_parameter(1, "w", "f32", (1 << 40, 1 << 40)), pir_result(1, 2, "f32", (1,))]
    assert "parameter 'w'" in refused(save_pir(tmp_path, ops, {"w": np.zeros(2, np.float32)}))


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        (pir_op("1.relu", [99], [(3, "f32", (2,))]), "'relu': value 99 is read, and nothing gives it"),
        ({"#": "1.relu", "I": [{}], "O": []}, "operator 1 of block 0, 'relu' cannot be read"),
        ({"#": 5}, "operator 1 of block 0 cannot be read"),
        (
            pir_op("1.softmax", [2], [(3, "f32", (2,))], [("axis", "0.a_i32", "one")]),
            "'softmax': an attribute of type a_i32 is 'one'",
        ),
    ],
)
def test_a_malformed_operator_of_paddle_3(tmp_path, op, problem):
    path = save_pir(tmp_path, [pir_input(2, "x", "f32", (2,)), op, pir_result(2, 4, "f32", (2,))])
    assert problem in refused(path)


def test_a_bad_program_costs_no_output(tmp_path):
    out = tmp_path / "out"
    dovetail.compile(dense().save(tmp_path), backends=["host"]).save(out)
    before = sorted(path.name for path in out.iterdir())
    (tmp_path / "net.json").write_text(json.dumps({"base_code": {"magic": "pir", "version": 4}, "program": 3}))
    with pytest.raises(DovetailError):
        dovetail.compile(tmp_path / "net.json", backends=["host"]).save(out)
    assert sorted(path.name for path in out.iterdir()) == before
