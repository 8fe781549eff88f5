"""`cpu-int8:kernel=nbits,cache=int8`: keys and values that GroupQueryAttention hands on in int8."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.errors import UsageError
from onnx import TensorProto, helper, numpy_helper

from .nets import plugins

HEADS, KV, SIZE, HIDDEN = 4, 2, 32, 64
OPTIONS = "cpu-int8:weights=int8,kernel=nbits"


def model(rotary=True, window=False, shared=False):
    """A layer as ONNX Runtime's exporter writes it; channels of keys differ in size by a factor of hundreds."""
    rng = np.random.default_rng(1)
    loud = np.exp(rng.normal(0, 1.5, KV * SIZE)).astype(np.float32)
    constants = {
        "wq": rng.standard_normal((HIDDEN, HEADS * SIZE)) / 64,
        "wk": rng.standard_normal((HIDDEN, KV * SIZE)) / 64 * loud,
        "wv": rng.standard_normal((HIDDEN, KV * SIZE)) / 8,
        "wo": rng.standard_normal((HEADS * SIZE, HIDDEN)) / 8,
    }
    angles = np.arange(64)[:, None] / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))
    constants |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    nodes = [helper.make_node("MatMul", ["x", f"w{part}"], [part], part) for part in "qkv"]
    names = ["q", "k", "v", "past_key", "past_value", "seqlens", "total", *(["cos", "sin"] if rotary else [])]
    settings = {"num_heads": HEADS, "kv_num_heads": KV, "do_rotary": int(rotary)}
    settings |= {"sliding_window_cache": 1, "local_window_size": 8} if window else {}
    outputs = ["attended", "present_key", "present_value"]
    nodes.append(
        helper.make_node("GroupQueryAttention", names, outputs, "attention", domain="com.microsoft", **settings)
    )
    nodes.append(helper.make_node("MatMul", ["attended", "wo"], ["y"], "o"))
    cache = [TensorProto.FLOAT, [1, KV, "P", SIZE]]
    inputs = [("x", TensorProto.FLOAT, [1, "S", HIDDEN]), ("past_key", *cache), ("past_value", *cache)]
    inputs += [("seqlens", TensorProto.INT32, [1]), ("total", TensorProto.INT32, [])]
    cache = [TensorProto.FLOAT, [1, KV, "T", SIZE]]
    results = [("y", TensorProto.FLOAT, [1, "S", HIDDEN]), ("present_key", *cache), ("present_value", *cache)]
    if shared:
        nodes.append(helper.make_node("ReduceMax", ["present_key"], ["most"], "most", keepdims=0))
        results.append(("most", TensorProto.FLOAT, []))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in results], tensors,
    )  # fmt: skip
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def session(content):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def prompt(seed, tokens=12):
    rng = np.random.default_rng(seed)
    nothing = np.zeros((1, KV, 0, SIZE), np.float32)
    x = rng.standard_normal((1, tokens, HIDDEN)).astype(np.float32)
    lengths = {"seqlens": np.array([tokens - 1], np.int32), "total": np.array(tokens, np.int32)}
    return {"x": x, "past_key": nothing, "past_value": nothing, **lengths}


def following(feeds, key, value):
    """One more token behind a prompt."""
    before = key.shape[2]
    lengths = {"seqlens": np.array([before], np.int32), "total": np.array(before + 1, np.int32)}
    return {"x": feeds["x"][:, -1:], "past_key": key, "past_value": value, **lengths}


def snr(exact, found):
    return 10 * np.log10((exact**2).sum() / ((found - exact) ** 2).sum())


@pytest.mark.parametrize("rotary", [True, False])
def test_caches_are_int8_with_a_scale_per_channel(rotary, tmp_path):
    source = model(rotary)
    data = [prompt(seed) for seed in range(4)]
    result = dovetail.compile(source, f"{OPTIONS},cache=int8", data=data, plugins=plugins(), verify=False)
    result.save(tmp_path)
    file = onnx.load(tmp_path / "model.onnx")
    kinds = {one.name: one.type.tensor_type.elem_type for one in [*file.graph.input, *file.graph.output]}
    assert {name for name, kind in kinds.items() if kind == TensorProto.INT8} == {
        "past_key", "past_value", "present_key", "present_value",
    }  # fmt: skip
    # A caller who hands the int8 caches on, and one with the float caches of the original.
    exact, found = session(source.SerializeToString()), session((tmp_path / "model.onnx").read_bytes())
    feeds = data[0]
    first, key, value = exact.run(None, feeds)
    nothing = np.zeros((1, KV, 0, SIZE), np.int8)
    mine, int8_key, int8_value = found.run(None, {**feeds, "past_key": nothing, "past_value": nothing})
    assert snr(first, mine) > 30
    (second, *_), (after, *_) = (
        exact.run(None, following(feeds, key, value)), found.run(None, following(feeds, int8_key, int8_value)),
    )  # fmt: skip
    assert snr(second, after) > 30
    scales = {one.name: numpy_helper.to_array(one) for one in file.graph.initializer}
    held = int8_key * scales["present_key_scale"]
    for channel in np.ndindex(KV, SIZE):  # quiet ones as well as loud ones
        at = (0, channel[0], slice(None), channel[1])
        assert snr(key[at], held[at]) > 30


def test_a_replayed_plan_has_the_ranges_of_caches_and_needs_no_data(tmp_path):
    source = model()
    backend = f"{OPTIONS},cache=int8"
    data = [prompt(seed) for seed in range(4)]
    dovetail.compile(source, backend, data=data, plugins=plugins(), verify=False).save(tmp_path / "first")
    again = dovetail.compile(source, backend, plan=tmp_path / "first/plan.yaml", plugins=plugins(), verify=False)
    again.save(tmp_path / "again")
    files = [onnx.load(tmp_path / name / "model.onnx") for name in ("first", "again")]
    first, second = (
        {one.name: one.raw_data for one in file.graph.initializer if "present" in one.name} for file in files
    )
    assert first == second
    assert sorted(first) == ["present_key_scale", "present_value_scale"]


@pytest.mark.slow
def test_verification_quantizes_what_enters_and_dequantizes_what_leaves():
    source = model()
    data = [prompt(seed) for seed in range(4)]
    _, key, value = session(source.SerializeToString()).run(None, data[0])
    data.append(following(data[0], key, value))
    found = {}
    for cache in ("as-written", "int8"):
        result = dovetail.compile(source, f"{OPTIONS},cache={cache}", data=data, plugins=plugins())
        found[cache] = dovetail.verify(source, result, data, plugins=plugins()).worst_snr_db
    assert found["as-written"] - 3 < found["int8"] < found["as-written"] + 0.5
    assert any("callers must hand these on" in remark.why for remark in result.remarks)


@pytest.mark.parametrize("rows", [8, 11])
def test_caches_that_drop_rows_are_int8_as_well_and_rows_in_no_use_do_not_count(rows, tmp_path):
    """The operator leaves rows open that hold no position: what stands there must not widen the ranges."""
    source, exact = model(window=True), session(model(window=True).SerializeToString())
    caches, data = [np.full((1, KV, rows, SIZE), 1e6, np.float32)] * 2, []
    for seed, tokens in enumerate((5, 1, 1, 1, 1, 4, 1)):
        before = sum(len(one["x"][0]) for one in data)
        lengths = {"seqlens": np.array([before + tokens - 1], np.int32), "total": np.array(before + tokens, np.int32)}
        data.append({**prompt(seed, tokens), "past_key": caches[0], "past_value": caches[1], **lengths})
        _, *caches = exact.run(None, data[-1])
        caches = [np.where(np.isfinite(cache), cache, 1e6).astype(np.float32) for cache in caches]  # never written
    result = dovetail.compile(source, f"{OPTIONS},cache=int8", data=data, plugins=plugins(), verify=False)
    result.save(tmp_path)
    found = session((tmp_path / "model.onnx").read_bytes())
    mine = [np.zeros((1, KV, rows, SIZE), np.int8)] * 2
    for feeds in data:
        expected, *_ = exact.run(None, feeds)
        given, *mine = found.run(None, {**feeds, "past_key": mine[0], "past_value": mine[1]})
        assert snr(expected, given) > 25


@pytest.mark.parametrize(("settings", "why"), [({"shared": True}, "other nodes read them")])
def test_caches_that_cannot_be_int8_stay_as_they_are(settings, why):
    source = model(**settings)
    data = [prompt(seed) for seed in range(2)]
    result = dovetail.compile(source, f"{OPTIONS},cache=int8", data=data, plugins=plugins(), verify=False)
    assert {value.dtype.name for value in result.model.graph.outputs} == {"FLOAT"}
    assert [remark.kind for remark in result.remarks if why in remark.why] == ["missed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("cpu-int8:weights=int8,cache=int8", "cache=int8 is an attribute of ONNX Runtime's GroupQueryAttention"),
        (f"{OPTIONS},cache=int8", "cache=int8 needs data"),
    ],
)
def test_what_int8_caches_need(options, message):
    with pytest.raises(UsageError, match=message):
        dovetail.compile(model(), options, plugins=plugins(), verify=False)
