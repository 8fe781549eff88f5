"""InferMeta: what operator files say about the types and shapes of results."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Pipeline
from dovetail_kernels.operator_files.inference import STANDARD, Meta
from dovetail_transforms.canonicalize.normalize import Normalize
from onnx import TensorProto, helper

F = "float32"


@pytest.mark.parametrize(
    ("name", "given", "shape"),
    [
        ("UnchangedInferMeta", [Meta(F, (2, "N")), 3], (2, "N")),
        ("ElementwiseInferMeta", [Meta(F, (2, 1, 4)), Meta(F, (3, 1))], (2, 3, 4)),
        ("ElementwiseInferMeta", [Meta(F, ("N", 4)), Meta(F, (4,))], ("N", 4)),
        ("ElementwiseInferMeta", [Meta(F, ("N",)), Meta(F, (5,))], (5,)),
        ("ElementwiseInferMeta", [Meta(F, ("N",)), Meta(F, ("M",))], (None,)),
        ("ElementwiseInferMeta", [Meta(F, None), Meta(F, (5,))], None),
        ("MatmulInferMeta", [Meta(F, ("N", 3, 4)), Meta(F, (4, 5))], ("N", 3, 5)),
        ("MatmulInferMeta", [Meta(F, (4, 3)), Meta(F, (5, 4)), True, True], (3, 5)),
        ("ConcatInferMeta", [[Meta(F, (2, 3)), Meta(F, (2, 4))], -1], (2, 7)),
        ("ConcatInferMeta", [[Meta(F, (2, "N")), Meta(F, (2, 4))], 1], (2, None)),
        ("TransposeInferMeta", [Meta(F, (2, "N", 4)), [2, 0, 1]], (4, 2, "N")),
        ("ReduceInferMeta", [Meta(F, (2, 3, 4)), [-1], False], (2, 3)),
        ("ReduceInferMeta", [Meta(F, (2, 3, 4)), [], True], (1, 1, 1)),
        ("CastInferMeta", [Meta(F, (2,)), "INT64"], (2,)),
    ],
)
def test_standard_functions(name, given, shape):
    assert STANDARD[name](*given).shape == shape


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ElementwiseInferMeta", [Meta(F, (2,)), Meta(F, (3,))]),
        ("MatmulInferMeta", [Meta(F, (2, 3)), Meta(F, (4, 5))]),
        ("ConcatInferMeta", [[Meta(F, (2,)), Meta(F, (2, 3))], 0]),
        ("TransposeInferMeta", [Meta(F, (2, 3)), [0, 0]]),
        ("ReduceInferMeta", [Meta(F, (2,)), [1]]),
    ],
)
def test_what_does_not_fit_is_refused(name, given):
    with pytest.raises(ValueError, match=r"\w"):
        STANDARD[name](*given)


OPS = """
domain: {domain}
{functions}
operators:
  - op: pair
    args: (Tensor x, Tensor y, int times = 2)
    output: Tensor(out), Tensor(index)
    infer_meta: {{func: {function}, param: [x, y, times]}}
    kernel: {{func: pair}}
"""

FUNCTIONS = """
from dovetail.passes import Context, Pipeline
from dovetail_transforms.canonicalize.normalize import Normalize
from dovetail_kernels.operator_files.inference import Meta

def PairInferMeta(x, y, times):
    if times > 5:
        raise ValueError(f"{times} is more than 5")
    return Meta(x.dtype, (x.shape[0], times)), Meta("int64", (x.shape[0],))

def OneInferMeta(x, y, times):
    return x

def BrokenInferMeta(x, y, times):
    return x.extents
"""


def net(domain, **attributes):
    node = helper.make_node("pair", ["x", "y"], ["a", "i"], name="own", domain=domain, **attributes)
    nodes = [node, helper.make_node("Relu", ["a"], ["b"], name="relu")]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("b", 1), ("i", 7))]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph(nodes, "net", inputs, outputs), opset_imports=imports, ir_version=8)


@pytest.fixture
def plan(with_operators, domain, tmp_path, monkeypatch):
    """`plan(function, **attributes)`: the plan of a net whose operator has this InferMeta, and its domain."""

    def planned(function, **attributes):
        module = f"{domain}_functions"
        (tmp_path / f"{module}.py").write_text(FUNCTIONS)
        monkeypatch.syspath_prepend(tmp_path)
        text = OPS.format(domain=domain, functions=f"functions: {module}", function=function)
        plugins = with_operators(text)
        model = dovetail.open(net(domain, **attributes), plugins=plugins)
        Pipeline([Normalize()]).run(model, Context(plugins=plugins))
        return model

    return planned


def test_results_have_the_types_that_the_function_of_a_vendor_gives(plan):
    types = {value.name: value for node in plan("PairInferMeta", times=4).nodes() for value in node.outputs}
    assert [list(types[name].shape) for name in "aib"] == [["N", 4], ["N"], ["N", 4]]
    assert [types[name].dtype.name for name in "aib"] == ["FLOAT", "INT64", "FLOAT"]


@pytest.mark.parametrize(
    ("function", "attributes", "says"),
    [
        ("PairInferMeta", {"times": 6}, "infer_meta PairInferMeta: 6 is more than 5"),
        ("OneInferMeta", {}, "returns Meta(dtype='float32', shape=('N', 3)), and the node has 2 outputs"),
        ("BrokenInferMeta", {}, "infer_meta BrokenInferMeta: AttributeError"),
        ("PairInferMetta", {}, "have 'PairInferMetta' (did you mean 'PairInferMeta'"),
    ],
)
def test_a_function_that_fails_is_named_with_its_line(plan, function, attributes, says):
    with pytest.raises(DovetailError) as raised:
        plan(function, **attributes)
    assert "ops.yaml:" in raised.value.message and says in raised.value.message
    assert "'own'" in raised.value.message or function == "PairInferMetta"  # which no node is needed for
