"""`--refine`: its names, where its default comes from, and what a plan keeps of it."""

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError

from .conftest import NET, with_weights

BAD = [
    ("bais", "unknown refinement 'bais' (did you mean 'bias'?)"),
    ("bias,Rounding", "unknown refinement 'Rounding' (did you mean 'rounding'?)"),
    ("none,bias", "refinement 'none' excludes bias"),
    ("bias,,", "unknown refinement ''"),
    ([7], "unknown refinement 7"),
]


@pytest.mark.parametrize(("given", "says"), BAD)
def test_a_refinement_that_there_is_not(compiled, given, says):
    with pytest.raises(UsageError) as caught:
        compiled(refine=given)
    assert says in str(caught.value)
    assert "there are equalize, smooth, rounding, bias" in str(caught.value) or "name bias alone" in str(caught.value)


def test_the_command_line_says_the_same_and_exits_with_2(tmp_path, capsys):
    model = tmp_path / "model.onnx"
    with_weights(NET).save(model)
    assert main(["compile", str(model), "--backend", "cpu-bf16", "--refine", "equaliz", "-o", str(tmp_path / "o")]) == 2
    assert "unknown refinement 'equaliz' (did you mean 'equalize'?)" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("step", ["smooth", "rounding", "bias"])
def test_what_follows_from_data_needs_data(compiled, installed, step):
    """A plan has the scales, and yet nothing to refine on."""
    plugins = installed()
    plan = compiled(plugins=plugins).plan
    with pytest.raises(DovetailError, match=f"refinement '{step}' needs data|without {step}"):
        compiled(data=None, plan=plan, plugins=plugins, refine=step)


def refined(result):
    return result.plan.summary.get("refined")


def test_the_default_comes_from_the_file_of_the_backend(compiled, installed):
    plugins = installed(("place:", "refine: [bias]\nplace:"))
    assert refined(compiled(plugins=plugins))["steps"] == {"npu": ["bias"]}
    assert refined(compiled(plugins=plugins, refine="none")) is None
    assert refined(compiled(plugins=plugins, refine=["equalize"]))["steps"] == {"npu": ["equalize"]}


def test_without_any_refinement_the_plan_says_nothing_of_it(compiled):
    assert refined(compiled()) is None
    assert refined(compiled(refine="none")) is None


FILES = [
    ("refine: [bias, rounded]", "inline.yaml:18: refine: unknown refinement 'rounded' (did you mean 'rounding'?)"),
    ("refine: [none, bias]", "inline.yaml:18: refine: 'none' excludes all others"),
    ("refine: {bias: true}", "inline.yaml:18: refine: a word or a list of words is expected"),
    ("refine: []", "inline.yaml:18: refine: the list is empty; leave the key out if nothing is meant"),
]


@pytest.mark.parametrize(("line", "says"), FILES)
def test_a_backend_file_with_a_mistake(compiled, line, says):
    with pytest.raises(DovetailError) as caught:
        compiled(NET, ("place:", f"{line}\nplace:"))
    assert says in str(caught.value)


def test_a_backend_written_in_python_with_a_mistake_is_named(compiled, installed, monkeypatch):
    from dovetail_schemas.backend import FileBackend

    monkeypatch.setattr(FileBackend, "refine", ("biass",), raising=False)
    plugins = installed(fresh=True)
    real = FileBackend.__init__

    def init(self, *arguments, **fields):
        real(self, *arguments, **{**fields, "refine": ("biass",)})

    monkeypatch.setattr(FileBackend, "__init__", init)
    with pytest.raises(DovetailError, match="backend 'npu': unknown refinement 'biass' .did you mean 'bias'"):
        compiled(plugins=plugins)


def test_it_is_part_of_the_request(compiled, installed, tmp_path):
    """So of the cache key: what was refined is recognized only by a request for the same."""
    plugins = installed()
    compiled(plugins=plugins, refine="equalize,bias").save(tmp_path)
    saved = tmp_path / "model.onnx"
    data = {"x": np.random.default_rng(1).standard_normal((8, 4, 8, 8)).astype(np.float32)}
    same = dovetail.compile(saved, "npu", data=data, plugins=plugins, refine=["bias", "equalize"])
    assert same.plan.summary["options"]["refine"] == {"steps": ["equalize", "bias"]}
    assert same.saved is not None
    assert dovetail.compile(saved, "npu", data=data, plugins=plugins, refine="bias").saved is None


def test_where_nothing_is_quantized_a_remark_says_that_nothing_was_refined(compiled):
    result = compiled(backends="cpu-bf16", refine="equalize,bias", data=None)
    assert [remark.why for remark in result.remarks if remark.rule == "refine"] == [
        "nothing is quantized, so nothing was refined"
    ]
    assert all(len(node.inputs) == 3 for node in result.model.graph if node.op_type == "Conv")


def test_nodes_on_other_backends_are_left_alone(compiled):
    result = compiled(refine="equalize,bias", backends=["npu", "cpu-bf16"], pins=["conv2=cpu-bf16"])
    touched = {remark.node for remark in result.remarks if remark.pass_ in ("equalize", "correct-biases")}
    assert "conv2" not in touched
