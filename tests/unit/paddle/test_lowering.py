"""`lower-paddle` turns `pd_op` operators into ONNX, and names all that it cannot."""

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

from .paddle_files import Legacy, pir_input, pir_op, pir_result, save_pir


def unknown() -> Legacy:
    """Two operators of a vendor, and one of Paddle that is not supported."""
    program = Legacy().feed("x", (2, 2)).var("a", (2, 2)).var("b", (2, 2)).var("y", (2, 2))
    program.op("acme_swoosh", {"X": ["x"]}, {"Out": ["a"]}, stack=['File "net.py", line 5'], speed=2)
    program.op("acme_swoosh", {"X": ["a"]}, {"Out": ["b"]}, stack=['File "net.py", line 6'], speed=3)
    return program.op("warpctc", {"Logits": ["b"]}, {"Loss": ["y"]}, stack=['File "net.py", line 9']).fetch("y")


def test_all_unknown_operators_are_named_at_once(tmp_path):
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(unknown().save(tmp_path), backends=["host"])
    lines = caught.value.message.split("\n")
    assert lines[0].endswith("net.pdmodel: 3 operators cannot be lowered:")
    assert lines[1:] == [
        "  acme_swoosh (2 times): there is no rule for it; 'acme_swoosh', which gives 'a', operator 1 of block 0, "
        "made at net.py:5",
        "  warpctc: there is no rule for it; 'warpctc', which gives 'y_1', operator 3 of block 0, made at net.py:9",
    ]
    assert "--keep-unknown" in caught.value.hint and "pd_ops.yaml" in caught.value.hint


def test_unknown_operators_of_paddle_3_are_named_with_their_layer(tmp_path):
    layer = [("struct_name", "0.a_str", "/Head/Loss/")]
    ops = [
        pir_input(1, "x", "f32", (2,)),
        pir_op("1.hinge_loss", [1], [(2, "f32", (2,))], layer),
        pir_result(2, 3, "f32", (2,)),
    ]
    with pytest.raises(DovetailError, match=r"hinge_loss: there is no rule for it; .* in layer /Head/Loss/"):
        dovetail.compile(save_pir(tmp_path, ops), backends=["host"])


def test_unknown_operators_can_be_kept(tmp_path, capsys):
    path = unknown().save(tmp_path)
    assert main(["opt", str(path), "-p", "lower-paddle{keep_unknown=true}"]) == 0
    text = capsys.readouterr().out
    assert "paddle.acme_swoosh <speed = 2> (x)" in text and "pd_op" not in text
    with pytest.raises(DovetailError, match="no engine here runs paddle::acme_swoosh"):
        dovetail.compile(path, backends=["host"], keep_unknown=True)


def test_a_program_prints_before_any_pass(tmp_path, capsys):
    assert main(["opt", str(unknown().save(tmp_path)), "-p", ""]) == 0
    assert "a = paddle.acme_swoosh <speed = 2> (x)" in capsys.readouterr().out


def test_the_command_compiles_and_verifies_a_program(tmp_path, capsys):
    program = Legacy().feed("x", (4, 4)).var("y", (4, 4)).op("gelu", {"X": ["x"]}, {"Out": ["y"]}).fetch("y")
    path, out = program.save(tmp_path), tmp_path / "out"
    assert main(["compile", str(path), "--backend", "cpu-bf16", "-o", str(out)]) == 0
    assert main(["verify", str(path), str(out)]) == 0
    assert "y: SNR" in capsys.readouterr().out


def test_nodes_remember_the_line_of_the_program(tmp_path):
    program = Legacy().feed("x", (2,)).var("y", (2,))
    program.op("swish", {"X": ["x"]}, {"Out": ["y"]}, stack=['File "net.py", line 8']).fetch("y")
    compiled = dovetail.compile(program.save(tmp_path), backends=["host"])
    assert {node.metadata_props["paddle.source"] for node in compiled.model.graph} == {"net.py:8"}


def test_operands_of_different_types_are_a_defect_of_the_program(tmp_path):
    program = Legacy().feed("x", (2,)).feed("h", (2,), "float16").var("y", (2,))
    program.op("elementwise_add", {"X": ["x"], "Y": ["h"]}, {"Out": ["y"]}, axis=-1).fetch("y")
    with pytest.raises(DovetailError, match="of different types, float and float16: the program is inconsistent"):
        dovetail.compile(program.save(tmp_path), backends=["host"])


def test_open_extents_that_an_operator_needs_are_named_with_the_way_out(tmp_path):
    program = Legacy().feed("x", (1, 18, -1, -1)).feed("size", (1, 2), "int32")
    program.var("boxes", (1, -1, 4)).var("scores", (1, -1, 1))
    program.op("yolo_box", {"X": ["x"], "ImgSize": ["size"]}, {"Boxes": ["boxes"], "Scores": ["scores"]},
               anchors=[10, 13, 16, 30, 33, 23], class_num=1).fetch("boxes")  # fmt: skip
    with pytest.raises(DovetailError, match="the extents of its input are open"):
        dovetail.compile(program.save(tmp_path), backends=["host"])


def test_models_of_other_front_ends_are_left_alone(tmp_path):
    import onnx

    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    compiled = dovetail.compile(tmp_path / "net.onnx", backends=["host"])
    np.testing.assert_array_equal(compiled.run({"x": np.array([-1, 1], np.float32)})["y"], [0, 1])


def test_a_constant_that_would_fill_the_memory_is_refused(tmp_path):
    full = [("shape", "1.a_intarray", [1 << 20, 1 << 20]), ("value", "0.a_f64", 1.0), ("dtype", "1.a_dtype", "float32")]
    ops = [
        pir_input(1, "x", "f32", (2,)),
        pir_op("1.full", [], [(2, "f32", (1 << 20, 1 << 20))], full),
        pir_op("1.add", [1, 2], [(3, "f32", (2,))]),
        pir_result(3, 4, "f32", (2,)),
    ]
    with pytest.raises(DovetailError, match="'add'.*|a constant with the extents .* is not made"):
        dovetail.compile(save_pir(tmp_path, ops), backends=["host"])


def test_operands_that_do_not_fit_the_operator_are_named(tmp_path):
    ops = [
        pir_input(1, "x", "f32", (2,)),
        pir_op("1.add", [1], [(2, "f32", (2,))]),
        pir_op("1.transpose", [2], [(3, "f32", (2,))]),
        pir_result(3, 4, "f32", (2,)),
    ]
    with pytest.raises(DovetailError, match="add: it has no operand 'y'; 'add', which gives 'add.2'"):
        dovetail.compile(save_pir(tmp_path, ops), backends=["host"])


def scaled_twice() -> Legacy:
    """`(x * 2 + 3) * 1e6`, as two operators, of which the first one becomes two nodes."""
    program = Legacy().feed("x", (4,)).var("a", (4,)).var("y", (4,))
    program.op("scale", {"X": ["x"]}, {"Out": ["a"]}, scale=2.0, bias=3.0, bias_after_scale=True)
    return program.op("scale", {"X": ["a"]}, {"Out": ["y"]}, scale=1e6, bias=0.0, bias_after_scale=True).fetch("y")


def test_nodes_know_their_operator(tmp_path):
    plan = dovetail.plan(scaled_twice().save(tmp_path), ["gpu-fp16"], solver="fixpoint")
    assert [(node.name, node.op_type, node.origin) for node in plan.nodes] == [
        ("scale", "Mul", ("scale",)),
        ("scale/Add", "Add", ("scale",)),
        ("scale_1", "Mul", ("scale_1",)),
    ]


def test_an_extent_that_paddle_multiplied_is_open(tmp_path):
    ops = [
        pir_input(1, "x", "f32", (-1, 4)),
        pir_op("1.relu", [1], [(2, "f32", (-4, 4))]),
        pir_result(2, 3, "f32", (-4, 4)),
    ]
    compiled = dovetail.compile(save_pir(tmp_path, ops), backends=["host"])
    assert next(iter(compiled.run({"x": np.ones((3, 4), np.float32)}).values())).shape == (3, 4)


def test_backward_slices_end_before_the_first_element_at_minus_one(tmp_path):
    program = Legacy().feed("x", (4,)).var("y", (4,))
    program.op("strided_slice", {"Input": ["x"]}, {"Out": ["y"]}, axes=[0], starts=[3], ends=[-1], strides=[-1],
               infer_flags=[1], decrease_axis=[-1]).fetch("y")  # fmt: skip
    compiled = dovetail.compile(program.save(tmp_path), backends=["host"])
    found = compiled.run({"x": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(next(iter(found.values())), [3, 2, 1, 0])
