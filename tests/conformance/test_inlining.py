"""Calls of local functions, inlined: defaults and references of attributes, ports left out, names, bodies, opsets."""

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail_onnx.opening import open_proto
from dovetail_transforms.canonicalize.normalize import Normalize
from onnx import helper

from .executing import on_runtime, run
from .function_cases import CASES, X, call, function, model, node


def inlined(proto, folder):
    opened = open_proto(onnx.ModelProto.FromString(proto.SerializeToString()))
    Normalize().run(opened, Context(model=opened))
    opened.save(folder / "inlined.onnx")
    return onnx.load(folder / "inlined.onnx")


@pytest.mark.parametrize("name", CASES)
def test_an_inlined_call_computes_what_the_function_says(name, tmp_path):
    proto, expected = CASES[name]
    result = inlined(proto, tmp_path)
    assert not result.functions
    onnx.checker.check_model(result)
    (found,) = run(result, {"x": X})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# ONNX Runtime refuses the first three, and computes an older Softmax as a newer one.
REFUSED = {"an output left out at the end", "an output that is an input", "an output twice",
           "an older function with a default", "an older function with a softmax"}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_onnx_runtime_computes_the_same_of_the_functions(name):
    proto, expected = CASES[name]
    (found,) = on_runtime(proto, {"x": X}, optimized=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_as_an_attribute_of_a_call_is_refused(tmp_path):
    branch = helper.make_graph([node("Neg", ["x"], ["b"])], "then", [], [helper.make_tensor_value_info("b", 1, [3, 4])])
    held = function("F", ["X"], ["Y"], [node("Neg", ["X"], ["Y"])], ["body"])
    with pytest.raises(DovetailError, match="'outer' gives function 'F' a graph as an attribute"):
        inlined(model([call("F", ["x"], ["y"], name="outer", body=branch)], [held]), tmp_path)
