"""A kernel by every way to misbehave: the error names it, its node and the line of the plugin."""

import sys
import warnings

import dovetail
import numpy as np
import pytest
from dovetail_kernels import Kernel
from onnx import parser

MODEL = """<ir_version: 8, opset_import: ["": 18, "acme.math": 1]>
g (float[4] x) => (float[4] y) { a = Relu (x) [own] b = acme.math.scale (a) [last] y = Neg (b) }"""
OPERATORS = """domain: acme.math
version: 1
operators:
  - {op: scale, args: (Tensor x), output: Tensor(out), infer_meta: {func: UnchangedInferMeta, param: [x]},
     kernel: {func: scale, data_type: x}}
"""
X = np.float32([1, -2, 3, -4])


def fail(error):
    raise error


def recurse():
    return recurse()


RAISES = {
    "KeyError": lambda: fail(KeyError("odd")),
    "SystemExit": lambda: sys.exit(3),
    "BaseException": lambda: fail(type("Odd", (BaseException,), {})("odd")),
    "RecursionError": recurse,
    "MemoryError": lambda: fail(MemoryError()),
}
GIVES = {
    "None": (lambda: None, "gives NoneType for 'b', and no array"),
    "a number": (lambda: 5, "gives int for 'b', and no array"),
    "a text": (lambda: "odd", "gives str for 'b', and no array"),
    "None in a list": (lambda: [None], "gives NoneType for 'b', and no array"),
    "an empty list": (list, "gives 0 of 1 outputs"),
    "another shape": (lambda: [np.zeros(3, np.float32)], "gives 'b' the shape [3]"),
    "another type": (lambda: [np.zeros(4, np.int64)], "gives 'b' as int64"),
}


class Scale(Kernel):
    function = "acme.math::scale"
    types = ("float32",)
    way = None

    def run(self, inputs, attributes):
        return type(self).way()


@pytest.fixture
def computed(tmp_path, monkeypatch):
    """`computed(way)`: the output of the model, with a kernel that does this."""
    (tmp_path / "acme_operators").mkdir()
    (tmp_path / "acme_operators" / "__init__.py").write_text("")
    (tmp_path / "acme_operators" / "operators.yaml").write_text(OPERATORS)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = dovetail.load_plugins()
    plugins.registry.operators("acme.math", "acme_operators:operators.yaml")
    plugins.registry.kernel("acme-scale", f"{__name__}:Scale")

    def run(way):
        monkeypatch.setattr(Scale, "way", staticmethod(way))
        return dovetail.compile(parser.parse_model(MODEL), "host", plugins=plugins).run({"x": X})["y"]

    yield run
    sys.modules.pop("acme_operators", None)


@pytest.mark.parametrize("way", RAISES)
def test_what_it_raises_is_an_error_with_its_place(way, computed):
    with pytest.raises(dovetail.DovetailError) as error:
        computed(RAISES[way])
    assert "node 'own': kernel 'acme-scale'" in error.value.message
    assert "test_misbehavior.py:" in error.value.message


@pytest.mark.parametrize("way", GIVES)
def test_what_it_gives_is_checked(way, computed):
    result, says = GIVES[way]
    with pytest.raises(dovetail.DovetailError) as error:
        computed(result)
    assert "node 'own': kernel 'acme-scale'" in error.value.message
    assert says in error.value.message


def test_what_it_prints_is_its_own_and_not_the_engines(computed, capsys):
    def prints():
        print("odd")
        return [np.zeros(4, np.float32)]

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert not computed(prints).any()
    assert any(str(warning.message).startswith("kernel 'acme-scale'") for warning in seen)
    assert capsys.readouterr().out == ""
