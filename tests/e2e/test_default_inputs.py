"""Inputs with a default: a caller may replace them, unless the request says that nobody does."""

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,4] x, float[4,4] w, float[4] scale) => (float[2,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,2,3,4}> {
  [product] a = MatMul (x, w)
  [scaled] y = Mul (a, scale)
}"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def compiled(**request):
    return dovetail.compile(open_text(MODEL, "model"), "cpu-bf16", **request)


def test_what_may_be_replaced_is_converted_in_every_run_and_a_note_says_so():
    result = compiled()
    assert [value.name for value in result.model.graph.inputs] == ["x", "w", "scale"]
    assert "Cast" in [node.op_type for node in result.model.graph]
    (said,) = [remark for remark in result.remarks if remark.rule == "default-inputs"]
    assert said.why.startswith("2 inputs such as 'w' have a default that callers may replace")
    assert "--freeze-inputs" in said.suggest
    assert said.why in result.notes()


def test_frozen_they_are_weights_like_others():
    """The scale is folded into the product, which is stored in bfloat16."""
    result = compiled(freeze_inputs=True)
    assert [value.name for value in result.model.graph.inputs] == ["x"]
    assert [node.op_type for node in result.model.graph if node.op_type in ("MatMul", "Mul")] == ["MatMul"]
    assert not [remark for remark in result.remarks if remark.rule == "default-inputs"]
    assert np.allclose(result.run({"x": X})["y"], X * [1, 2, 3, 4], rtol=1e-2)


@pytest.mark.parametrize("backend", ["cpu-int8", "bpu-int8"])
def test_a_weight_that_needs_a_scale_is_an_error_that_names_the_option_first(backend):
    request = {"data": {"x": X}, "pins": f"product={backend}"}
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(open_text(MODEL, "model"), backend, **request)
    assert "'w'" in caught.value.message and "--freeze-inputs makes it a constant" in caught.value.message
    dovetail.compile(open_text(MODEL, "model"), backend, **request, freeze_inputs=True)


def test_the_option_of_the_command(tmp_path, capsys):
    import onnx
    from dovetail.cli.main import main

    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    words = ["compile", str(tmp_path / "m.onnx"), "--backend", "cpu-bf16", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert "--freeze-inputs makes constants of them" in "".join(capsys.readouterr())
    assert main([*words, "--freeze-inputs"]) == 0
    result = dovetail.load(tmp_path / "out")
    assert len(result.model.graph.inputs) == 1


@pytest.mark.parametrize("freeze", [False, True])
def test_plan_and_bisect_take_it_too(freeze):
    plan = dovetail.plan(open_text(MODEL, "model"), "cpu-bf16", freeze_inputs=freeze)
    assert ("scaled" in [node.name for node in plan.nodes]) != freeze
