"""`cpu-int8:kernel=nbits` with mixtures of experts: MoE with weights in few bits is a QMoE."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from .nets import plugins

EXPERTS, HIDDEN, INNER, TOKENS = 4, 64, 128, 7
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "swiglu_limit": 7.0}
KINDS = {"silu": {"activation_type": "silu"}, "gelu": {"activation_type": "gelu"}, "swiglu": SWIGLU}


def on_grid(shape, bits, block, seed):
    """Weights that integers in blocks hold exactly: each block has the lowest one, and a scale of its own."""
    rng = np.random.default_rng(seed)
    low = -(1 << (bits - 1))
    integers = rng.integers(low, -low, (*shape[:-1], shape[-1] // block, block))
    integers[..., 0] = low
    scales = rng.uniform(0.5, 1, (*shape[:-1], shape[-1] // block, 1)) / -low / 8
    return (integers * scales).reshape(shape).astype(np.float32)


def model(kind, bias, weight):
    """A MoE; `weight` gives the numbers of a shape and a seed."""
    rng = np.random.default_rng(9)
    first = INNER * (2 if kind == "swiglu" else 1)
    arrays = {"w1": weight((EXPERTS, first, HIDDEN), 1), "w2": weight((EXPERTS, HIDDEN, INNER), 2)}
    names = ["x", "r", "w1", "", "w2", ""]
    if bias:
        names[3], names[5] = "b1", "b2"
        shapes = {"b1": (EXPERTS, first), "b2": (EXPERTS, HIDDEN)}
        arrays |= {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node(
        "MoE", names, ["y"], "experts", domain="com.microsoft", k=2, normalize_routing_weights=1, **KINDS[kind]
    )
    ends = [("x", [TOKENS, HIDDEN]), ("r", [TOKENS, EXPERTS]), ("y", [TOKENS, HIDDEN])]
    x, r, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends)
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", [x, r], [y], constants)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def feeds():
    rng = np.random.default_rng(3)
    shapes = {"x": (TOKENS, HIDDEN), "r": (TOKENS, EXPERTS)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def run(content):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds())[0]


def compiled(source, options):
    level = "" if "accuracy_level" in options else ",accuracy_level=1"
    return dovetail.compile(source, f"cpu-int8:{options},kernel=nbits{level}", plugins=plugins(), verify=False)


def snr(exact, found):
    return 10 * np.log10((exact**2).sum() / ((found - exact) ** 2).sum())


@pytest.mark.generated
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "bits", "block", "least"),
    [
        ("weights=int4", 4, 32, 100),
        ("weights=int4,block=16", 4, 16, 100),
        ("weights=int4,block=64,accuracy_level=4", 4, 64, 30),
        ("weights=int2,block=16", 2, 16, 100),
        ("weights=int8", 8, 32, 30),
        ("weights=int8-blocks,block=64", 8, 64, 30),
    ],
)
def test_experts_in_few_bits_compute_what_their_integers_say(kind, bias, options, bits, block, least):
    source = model(kind, bias, lambda shape, seed: on_grid(shape, bits, block, seed))
    result = compiled(source, options)
    (node,) = result.model.graph
    assert node.op_type == "QMoE"
    assert (node.attributes.get_int("expert_weight_bits"), node.attributes.get_int("block_size")) == (bits, block)
    assert snr(run(source.SerializeToString()), result.run(feeds())["y"]) > least
    (remark,) = [remark for remark in result.remarks if remark.rule == "quantized-experts"]
    assert ("in float32" in remark.why) == (least == 100)


@pytest.mark.parametrize(
    ("options", "least", "part"),
    [
        ("weights=int4,scheme=asymmetric,scales=float16", 16, 4.75 / 32),
        ("weights=int8-blocks,scheme=asymmetric", 30, 9.3 / 32),
        ("weights=int2,scheme=asymmetric,block=16,scales=float16", 5, 3.3 / 32),
    ],
)
def test_experts_with_zero_points_and_scales_in_float16(options, least, part, tmp_path):
    normal = lambda shape, seed: np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 8  # noqa: E731
    source = model("silu", False, normal)
    result = compiled(source, options)
    result.save(tmp_path)
    exact = run(source.SerializeToString())
    assert snr(exact, run((tmp_path / "model.onnx").read_bytes())) > least
    size = sum(value.const_value.nbytes for value in result.model.graph.initializers.values())
    assert size < part * sum(tensor.ByteSize() for tensor in source.graph.initializer)


def test_experts_that_blocks_do_not_fit_stay_floats():
    source = model("silu", False, lambda shape, _: np.ones(shape, np.float32))
    for tensor in source.graph.initializer:
        array = numpy_helper.to_array(tensor)
        kept = array[:, : INNER - 4] if tensor.name == "w1" else array[:, :, : INNER - 4]
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(kept), tensor.name))
    onnx.checker.check_model(source)
    assert [node.op_type for node in compiled(source, "weights=int4").model.graph] == ["MoE"]
