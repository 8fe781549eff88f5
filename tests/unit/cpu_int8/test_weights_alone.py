"""`cpu-int8:weights=int8` and `weights=int4`: weights in few bits, products in floats, and no data."""

import dovetail
import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from dovetail.errors import DovetailError, UsageError
from onnx import numpy_helper

from .nets import plugins

INT4 = "cpu-int8:weights=int4"
MATMUL = "y = MatMul (x, w)"
QKV = "q = MatMul (x, w) k = MatMul (x, v) s = Add (q, k) y = MatMul (s, u)"
TIED = "e = Gather (t, i) z = MatMul (e, w) r = Transpose <perm = [1, 0]> (t) y = MatMul (z, r)"
SHAPES = {
    "w": (128, 128),
    "v": (128, 128),
    "u": (128, 128),
    "g": (96, 128),
    "t": (500, 128),
    "head": (128, 500),
    "o": (100, 128),
    "b": (96,),
}


def model(body, given="float[5,128] x"):
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({given}) => (float[a,c] y) {{ {body} }}'
    if "Gather" in body:
        text = text.replace("float[a,c]", "float[5,500]")
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(1)
    read = {name for node in made.graph.node for name in node.input}
    for name in sorted(read & SHAPES.keys()):
        array = (rng.standard_normal(SHAPES[name]) / np.sqrt(SHAPES[name][0])).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def compiled(source, backend=INT4, **request):
    return dovetail.compile(source, backend, plugins=plugins(), verify=False, **request)


def inputs(source):
    rng = np.random.default_rng(2)
    if source.graph.input[0].name == "i":
        return {"i": rng.integers(0, 500, 5)}
    shape = [extent.dim_value for extent in source.graph.input[0].type.tensor_type.shape.dim]
    return {"x": rng.standard_normal(shape).astype(np.float32)}


def snr(exact, found):
    return 10 * np.log10((exact**2).sum() / ((found - exact) ** 2).sum())


def run(content, feeds):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def formats(result):
    return {name: held["format"] for name, (held,) in result.plan.values.items()}


def operators(result):
    return [node.op_type for node in result.model.graph]


@pytest.mark.generated
@pytest.mark.parametrize(
    ("options", "format_", "least"),
    [
        ("weights=int8", "int8[symmetric,axis=1]", 38),
        ("weights=int4", "int4[symmetric,axis=0,group=32]", 18),
        ("weights=int4,block=64", "int4[symmetric,axis=0,group=64]", 17),
        ("weights=int4,block=128", "int4[symmetric,axis=0,group=128]", 16),
        ("weights=int4,scheme=asymmetric", "uint4[asymmetric,axis=0,group=32]", 20),
        ("weights=int4,block=128,scheme=asymmetric", "uint4[asymmetric,axis=0,group=128]", 17),
        ("weights=int4,block=16", "int4[symmetric,axis=0,group=16]", 20),
        ("weights=int8-blocks", "int8[symmetric,axis=0,group=32]", 42),
        ("weights=int8-blocks,block=128,scheme=asymmetric", "uint8[asymmetric,axis=0,group=128]", 40),
    ],
)
@pytest.mark.parametrize("kernel", ["qdq", "nbits"])
def test_a_product_reads_its_weight_in_few_bits(options, format_, least, kernel):
    source = model(MATMUL)
    result = compiled(source, f"cpu-int8:{options},kernel={kernel},accuracy_level=1")
    assert formats(result) == {"w": format_}
    of_4_bits, of_8_bits = ["MatMulNBits"], ["Mul", "MatMulNBits", "MatMulNBits", "Add"]
    few = of_8_bits if "int8" in options else of_4_bits
    assert operators(result) == (["DequantizeLinear", "MatMul"] if kernel == "qdq" else few)
    exact = run(source.SerializeToString(), inputs(source))
    assert snr(exact, result.run(inputs(source))["y"]) > least


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize(("scheme", "element", "least"), [("symmetric", "int2", 6), ("asymmetric", "uint2", 7)])
def test_weights_of_2_bits_are_those_of_matmul_nbits(scheme, element, least, block):
    source = model(MATMUL)
    result = compiled(source, f"cpu-int8:weights=int2,kernel=nbits,accuracy_level=1,scheme={scheme},block={block}")
    assert formats(result) == {"w": f"{element}[{scheme},axis=0,group={block}]"}
    assert operators(result) == ["MatMulNBits"]
    exact = run(source.SerializeToString(), inputs(source))
    assert snr(exact, result.run(inputs(source))["y"]) > least
    assert sizes(result) < 128 * 128 * (2 / 8 + 5 / block) + 64


def test_within_a_size_weights_of_2_bits_get_4_or_8():
    source = model(QKV)
    narrow = compiled(source, "cpu-int8:weights=int2,kernel=nbits,accuracy_level=1")
    for more, widest in ((2 * 128 * 64, "int4"), (3 * 128 * 64, "int8")):
        between = compiled(source, "cpu-int8:weights=int2,kernel=nbits,accuracy_level=1", max_size=sizes(narrow) + more)
        found = formats(between)
        assert max(one.partition("[")[0] for one in found.values()) == widest and found["w"] == found["v"]
        assert sizes(between) <= sizes(narrow) + more


@pytest.mark.parametrize("options", ["weights=int2", "weights=int4,embedding=as-weights"])
def test_what_only_matmul_nbits_has_needs_it(options):
    with pytest.raises(UsageError, match="there is none with kernel=qdq"):
        compiled(model(MATMUL), f"cpu-int8:{options}")


@pytest.mark.generated
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("body", [MATMUL, "y = Gemm <transB = 1> (x, g, b)", "y = Gemm (x, w)"])
def test_both_kernels_and_both_engines_compute_the_same(scheme, body):
    source = model(body)
    feeds = inputs(source)
    found = [
        compiled(source, f"{INT4},scheme={scheme},kernel={kernel},accuracy_level=1") for kernel in ("qdq", "nbits")
    ]
    results = [one.run(feeds)["y"] for one in found]
    results.append(run(onnx_ir.to_proto(found[1].model.ir).SerializeToString(), feeds))
    for other in results[1:]:
        assert np.abs(other - results[0]).max() <= 1e-5 * np.abs(results[0]).max()


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("kernel", ["qdq", "nbits"])
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_scales_in_float16_take_half_the_bytes_and_cost_no_accuracy(kernel, scheme, tmp_path):
    source = model(MATMUL)
    exact = run(source.SerializeToString(), inputs(source))
    found = {}
    for scales in ("float32", "float16"):
        result = compiled(source, f"{INT4},scheme={scheme},kernel={kernel},accuracy_level=1,scales={scales}")
        result.save(tmp_path / scales)
        file = (tmp_path / scales / "model.onnx").read_bytes()
        found[scales] = sizes(result), snr(exact, run(file, inputs(source))), result.run(inputs(source))["y"]
    assert found["float32"][0] - found["float16"][0] == 2 * 128 * 128 // 32
    assert abs(found["float32"][1] - found["float16"][1]) < 0.1
    assert snr(found["float32"][2], found["float16"][2]) > 55


def test_weights_whose_scales_float16_does_not_hold_stay_floats_or_are_an_error(tmp_path):
    source = model(MATMUL)
    array = numpy_helper.to_array(source.graph.initializer[0]) * np.float32(1e-6)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    result = compiled(source, f"{INT4},scales=float16")
    assert operators(result) == ["MatMul"]
    assert any("float16 does not hold" in remark.why for remark in result.remarks)
    unchecked = compiled(source, f"{INT4},scales=float16", try_engines=False)
    with pytest.raises(DovetailError, match="float16 does not hold 'w_scale"):
        unchecked.save(tmp_path / "out")


def test_scales_in_float16_are_those_of_weights_alone():
    with pytest.raises(UsageError, match="scales=float16 is for weights alone"):
        compiled(model(MATMUL), "cpu-int8:scales=float16", data=inputs(model(MATMUL)))


def test_products_round_what_they_read_where_no_data_forbids_it():
    """As the exporters of language models have it."""
    (node,) = compiled(model(MATMUL), f"{INT4},kernel=nbits").model.graph
    assert node.attributes.get_int("accuracy_level") == 4


def test_accuracy_level_4_rounds_what_products_read():
    source = model(MATMUL)
    levels = [compiled(source, f"{INT4},kernel=nbits,accuracy_level={level}") for level in (1, 4)]
    exact, rounded = (one.run(inputs(source))["y"] for one in levels)
    assert 0 < np.abs(exact - rounded).max() < 0.05 * np.abs(exact).max()
    assert any("rounded to int8" in remark.why for remark in levels[1].remarks)
    with pytest.raises(UsageError, match="accuracy_level=4 is an attribute of MatMulNBits"):
        compiled(source, f"{INT4},accuracy_level=4")


@pytest.mark.parametrize(
    ("level", "weights", "goal", "chosen", "says"),
    [
        ("4", "int4", None, 4, "a loss of 0.5 dB is kept"),
        ("4", "int8-blocks,block=16", None, 4, "a loss of 0.5 dB is exceeded"),
        ("measured", "int4", None, 4, "a loss of 0.5 dB is kept"),
        ("measured", "int4", 15, 4, "the goal of 15 dB is kept"),
        ("measured", "int8-blocks,block=16", None, 1, "is exceeded, so accuracy_level=1 is chosen"),
        ("measured", "int8-blocks,block=16", 40, 4, "the goal of 40 dB is kept"),
        ("measured", "int8-blocks,block=16", 45, 1, "the goal of 45 dB is missed, so accuracy_level=1 is chosen"),
    ],
)
def test_what_accuracy_level_4_costs_is_measured_on_the_data(level, weights, goal, chosen, says):
    source = model(MATMUL)
    options = f"weights={weights},kernel=nbits,accuracy_level={level}"
    result = dovetail.compile(
        source, f"cpu-int8:{options}", plugins=plugins(), data=[inputs(source)] * 2, refine="none", min_snr=goal
    )
    levels = {node.attributes.get_int("accuracy_level") for node in result.model.graph if node.domain}
    assert levels == {chosen}
    (remark,) = [remark for remark in result.remarks if remark.rule == "accuracy-level"]
    assert says in remark.why
    one = compiled(source, f"cpu-int8:weights={weights},kernel=nbits,accuracy_level=1")
    exact = run(source.SerializeToString(), inputs(source))
    assert f"beside {snr(exact, one.run(inputs(source))['y']):.2f} dB with 1" in remark.why


@pytest.mark.generated
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize(("body", "given"), [(QKV, "float[5,128] x"), (TIED, "int64[5] i")])
@pytest.mark.parametrize("half", ["", ",scales=float16"])
def test_products_of_8_bits_in_floats_are_two_of_4_bits_with_the_same_result(scheme, body, given, half):
    source = model(body, given)
    options = f"weights=int8-blocks,embedding={{}},scheme={scheme}{half}"
    halves = compiled(source, f"cpu-int8:{options.format('as-weights')},kernel=nbits,accuracy_level=1")
    assert {node.attributes.get_int("bits") for node in halves.model.graph if node.domain} == {4}
    if body == QKV:
        whole = compiled(source, f"cpu-int8:{options.format('int8')},kernel=qdq").run(inputs(source))["y"]
    else:  # a table in blocks is an operator of ONNX Runtime
        whole = run(source.SerializeToString(), inputs(source))
    assert snr(whole, halves.run(inputs(source))["y"]) > (100 if body == QKV else 38)


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_products_of_one_value_are_merged_with_the_same_result(scheme):
    source = model(QKV)
    merged, single = (
        compiled(source, f"{INT4},scheme={scheme},kernel={kernel},accuracy_level=1") for kernel in ("nbits", "qdq")
    )
    assert operators(merged) == ["MatMulNBits", "Split", "Add", "MatMulNBits"]
    assert snr(single.run(inputs(source))["y"], merged.run(inputs(source))["y"]) > 100


def attending(read_twice=False):
    """Return a model whose attention reads three products of one value."""
    outputs = "float[1,3,128] y" + (", float[1,3,128] q" if read_twice else "")
    text = f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    g (float[1,3,128] x) => ({outputs}) {{
        q = MatMul (x, w)
        k = MatMul (x, k_weight)
        v = MatMul (x, v_weight)
        y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, , , lengths, total)
    }}"""
    made, rng = onnx.parser.parse_model(text), np.random.default_rng(1)
    for name, columns in (("w", 128), ("k_weight", 64), ("v_weight", 64)):
        array = rng.standard_normal((128, columns), np.float32) / 11
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    made.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int32), "lengths"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([3], np.int32), "total"))
    return made


@pytest.mark.parametrize(("read_twice", "splits"), [(False, 0), (True, 1)])
def test_attention_reads_merged_queries_keys_and_values_as_they_are(read_twice, splits):
    source = attending(read_twice)
    merged, single = (compiled(source, f"{INT4},kernel={kernel},accuracy_level=1") for kernel in ("nbits", "qdq"))
    assert operators(merged).count("Split") == splits
    assert operators(merged).count("MatMulNBits") == 1
    feeds = inputs(source)
    assert snr(single.run(feeds)["y"], merged.run(feeds)["y"]) > 100


def test_an_embedding_that_is_also_the_head_is_stored_once():
    source = model(TIED, "int64[5] i")
    result = compiled(source)
    stored = [value for value in result.model.graph.initializers.values() if value.name.startswith("t_int8")]
    assert [value.shape.numpy() for value in stored] == [(500, 128)]
    assert "t" not in result.model.graph.initializers
    exact = run(source.SerializeToString(), inputs(source))
    assert snr(exact, result.run(inputs(source))["y"]) > 17


EMBEDDINGS = {
    "transpose": TIED,
    "transposed": "r = Transpose <perm = [1, 0]> (head) e = Gather (r, i) z = MatMul (e, w) y = MatMul (z, head)",
    "gemm": "e = Gather (t, i) z = MatMul (e, w) y = Gemm <transB = 1> (z, t)",
    "equal tensors": "e = Gather (t, i) z = MatMul (e, w) y = MatMul (z, head)",
}


@pytest.mark.generated
@pytest.mark.parametrize(
    "options",
    [
        "int4",
        "int4,embedding=as-weights",
        "int4,embedding=as-weights,scheme=asymmetric,scales=float16",
        "int8-blocks,embedding=as-weights,scheme=asymmetric,block=16",
        "int2,embedding=as-weights,scheme=asymmetric,block=16",
    ],
)
@pytest.mark.parametrize("body", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_with_matmul_nbits_too_an_embedding_that_is_also_the_head_is_stored_once(body, options, tmp_path):
    source = model(body, "int64[5] i")
    rows = np.random.default_rng(7).standard_normal((500, 128)).astype(np.float32)
    for tensor in source.graph.initializer:
        if tensor.name in ("t", "head"):
            tensor.CopyFrom(numpy_helper.from_array(rows if tensor.name == "t" else rows.T.copy(), tensor.name))
    result = compiled(source, f"cpu-int8:weights={options},kernel=nbits,accuracy_level=4")
    assert {"GatherBlockQuantized", "MatMulNBits"} == set(operators(result)) - {"Reshape", "Cast"}
    large = [tensor for tensor in constants(result) if tensor.shape[0] == 500 and tensor.size >= 500 * 128 // 4]
    assert len(large) == 1 and large[0].dtype == onnx_ir.DataType.UINT8
    result.save(tmp_path)
    saved = run((tmp_path / "model.onnx").read_bytes(), inputs(source))
    # The embedding that is gathered is that of the head: the same nets with the numbers that the file has.
    table = dequantized(result, large[0])
    for tensor in source.graph.initializer:
        if tensor.name in ("t", "head"):
            tensor.CopyFrom(numpy_helper.from_array(table if tensor.name == "t" else table.T.copy(), tensor.name))
    exact = run(source.SerializeToString(), inputs(source))
    assert snr(exact, saved) > (6 if "int2" in options else 17)  # the error of `w` alone is left


def constants(result):
    return [value.const_value for value in result.model.graph.initializers.values()]


def dequantized(result, packed):
    """The table of a GatherBlockQuantized, as its definition says."""
    node = next(node for node in result.model.graph if node.op_type == "GatherBlockQuantized")
    bits, block = (node.attributes.get_int(name, 0) for name in ("bits", "block_size"))
    stored = packed.numpy().reshape(500, -1)
    integers = np.stack([stored >> place & ((1 << bits) - 1) for place in range(0, 8, bits)], -1).reshape(500, -1)
    cast = node.inputs[2].producer()
    scale = (cast.inputs[0] if cast else node.inputs[2]).const_value.numpy().astype(np.float32)
    zero = np.full(scale.shape, 1 << (bits - 1))
    if len(node.inputs) > 3:
        points = node.inputs[3].const_value.numpy()
        zero = np.stack([points >> place & ((1 << bits) - 1) for place in range(0, 8, bits)], -1)
        zero = zero.reshape(500, -1)[:, : scale.shape[1]]
    return ((integers.astype(np.int32) - np.repeat(zero, block, 1)) * np.repeat(scale, block, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("body", "held"),
    [
        # written out: rows times the reciprocal of their own magnitude
        ("s = Mul (e, e) m = ReduceMean <axes = [-1]> (s) r = Sqrt (m) n = Reciprocal (r) z = Mul (e, n)", True),
        # cosines of positions, times what is computed of tokens
        ("f = Cast <to = 1> (i) l = Constant <value_ints = [-1]> () g = Unsqueeze (f, l) z = Mul (e, g)", False),
    ],
    ids=["normalized", "turning"],
)
def test_tables_of_tokens_are_held_in_integers_and_those_that_turn_values_are_not(body, held):
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 17]> g (int64[5] i) => (float[5,128] z)
        <float[500, 128] t> {{ e = Gather (t, i) {body} }}"""
    )
    del source.graph.initializer[:]
    array = np.random.default_rng(1).standard_normal((500, 128)).astype(np.float32)
    source.graph.initializer.append(numpy_helper.from_array(array, "t"))
    assert ("t" in formats(compiled(source))) == held


def test_rows_are_gathered_as_integers():
    result = compiled(model(TIED, "int64[5] i"), "cpu-int8:weights=int8")
    read = {node.inputs[0].name for node in result.model.graph if node.op_type == "Gather"}
    assert read == {"t_int8", "t_scale"}


def test_a_weight_that_no_block_fits_has_8_bits():
    result = compiled(model("y = MatMul (x, o)", "float[5,100] x"))
    assert formats(result) == {"o": "int8[symmetric,axis=1]"}


def test_a_replayed_plan_has_the_same_formats():
    source = model(QKV)
    first = compiled(source, max_size="60kB")
    assert formats(compiled(source, plan=first.plan)) == formats(first)


def sizes(result):
    return sum(value.const_value.nbytes for value in result.model.graph.initializers.values())


def test_within_a_size_products_of_one_value_share_a_format():
    source = model(QKV)
    narrow, wide = compiled(source), compiled(source, "cpu-int8:weights=int8")
    between = compiled(source, max_size=sizes(narrow) + 2 * 128 * 64)
    found = formats(between)
    assert found["w"] == found["v"] and len(set(found.values())) == 2
    assert sizes(narrow) < sizes(between) <= sizes(narrow) + 2 * 128 * 64 < sizes(wide)
    assert any("of 3 with more bits" in remark.why for remark in between.remarks)
    exact = run(source.SerializeToString(), inputs(source))
    results = [snr(exact, one.run(inputs(source))["y"]) for one in (narrow, between, wide)]
    assert results == sorted(results)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("options", ["kernel=nbits", "kernel=nbits,scheme=asymmetric,scales=float16", "kernel=qdq"])
@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
def test_a_size_holds_for_all_that_is_written(tmp_path, options, external):
    """The graph and the factors of smoothing count as well, and so do the gaps between weights in a data file."""
    source, folder = model(QKV), tmp_path / "source"
    folder.mkdir()
    arguments = {"save_as_external_data": True, "location": "weights", "size_threshold": 0} if external else {}
    onnx.save(source, folder / "model.onnx", **arguments)
    data = [inputs(source)] * 3

    def written(**size):
        out = tmp_path / f"out{len(size)}"
        result = dovetail.compile(
            folder / "model.onnx", f"cpu-int8:weights=int4,{options}", verify=False, data=data, **size
        )
        result.save(out, external=external or None)
        return sum(file.stat().st_size for file in out.iterdir() if file.suffix in (".onnx", ".data"))

    narrow = written()
    for share in (0.1, 0.5, 0.9):
        limit = narrow + int(share * 3 * 128 * 64)
        assert written(max_size=limit) <= limit


def test_sizes_that_cannot_be():
    with pytest.raises(DovetailError, match=r"--max-size allows 1,000 bytes, and the weights need"):
        compiled(model(QKV), max_size=1000)
    with pytest.raises(UsageError, match="is no size"):
        compiled(model(QKV), max_size="much")
    with pytest.raises(UsageError, match="needs a backend that stores weights in few bits"):
        compiled(model(QKV), "host", max_size="1MB")


def test_bad_weights_are_errors_that_name_them():
    source = model(MATMUL)
    array = numpy_helper.to_array(source.graph.initializer[0]).copy()
    array[0, 0] = np.nan
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    with pytest.raises(DovetailError, match="'w'"):
        compiled(source)


def test_refinements_on_request_read_the_scales_of_blocks():
    source = model(MATMUL)
    data = [inputs(source)] * 2
    result = compiled(source, data=data, refine="rounding")
    assert formats(result) == {"w": "int4[symmetric,axis=0,group=32]"}


NORMED = "h = LayerNormalization (x, n) q = MatMul (h, w) k = MatMul (h, v) y = Add (q, k)"


def with_loud_channels():
    """A net whose products read a few channels that are loud, and samples for it."""
    made = model(NORMED)
    scale = np.full(128, 0.05, np.float32)
    scale[::16] = 3.0
    made.graph.initializer.append(numpy_helper.from_array(scale, "n"))
    rng = np.random.default_rng(3)
    return made, [{"x": rng.standard_normal((5, 128)).astype(np.float32)} for _ in range(20)]


@pytest.mark.parametrize("options", ["weights=int4", "weights=int4,scheme=asymmetric", "weights=int8"])
def test_data_scales_the_channels_of_weights_where_products_gain_by_it(options):
    source, data = with_loud_channels()
    plain = compiled(source, f"cpu-int8:{options}")
    scaled = compiled(source, f"cpu-int8:{options}", data=data[:10], refine="smooth")
    before, after = (dovetail.verify(source, one, data[10:], plugins=plugins()).worst_snr_db for one in (plain, scaled))
    assert after > before + 3
    (remark,) = [remark for remark in scaled.remarks if remark.rule == "smooth" and remark.kind == "passed"]
    assert "the channels of 'h' are divided by" in remark.why
    assert formats(scaled) == formats(plain)


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("options", ["weights=int4", "weights=int4,scheme=asymmetric", "weights=int4,kernel=nbits"])
@pytest.mark.parametrize("body", [MATMUL, "y = Gemm <transB = 1> (x, g, b)"])
def test_scales_of_blocks_are_those_with_the_least_error_of_the_product(options, body):
    source = model(body)
    rng = np.random.default_rng(5)
    loud = np.where(np.arange(128) % 8 == 3, 4.0, 0.2).astype(np.float32)
    data = [{"x": rng.standard_normal((5, 128)).astype(np.float32) * loud} for _ in range(20)]
    plain = compiled(source, f"cpu-int8:{options}")
    weighed = compiled(source, f"cpu-int8:{options}", data=data[:10], refine="scales")
    before, after = (
        dovetail.verify(source, one, data[10:], plugins=plugins()).worst_snr_db for one in (plain, weighed)
    )
    assert after > before + 0.5
    assert [r.rule for r in weighed.remarks if r.kind == "passed" and "energy of its input" in r.why] == ["scales"]
    assert formats(weighed) == formats(plain)


def test_a_replayed_plan_has_the_energies_and_needs_no_data(tmp_path):
    source, data = with_loud_channels()
    first = compiled(source, data=data, refine="scales")
    first.save(tmp_path)
    again = compiled(source, plan=tmp_path / "plan.yaml")
    assert np.array_equal(first.run(data[0])["y"], again.run(data[0])["y"])
    with pytest.raises(DovetailError, match="refinement 'scales' needs data"):
        compiled(source, refine="scales")


CORRELATED = [
    "weights=int4",
    "weights=int4,scheme=asymmetric",
    "weights=int4,scheme=asymmetric,kernel=nbits,accuracy_level=1,scales=float16",
    "weights=int2,scheme=asymmetric,kernel=nbits,accuracy_level=1",
    "weights=int8-blocks",
]


def correlated(body):
    """A net whose input has few independent channels, and samples of it."""
    rng = np.random.default_rng(6)
    mixing = rng.standard_normal((12, 128))
    made = (rng.standard_normal((5, 12)) @ mixing + 0.1 * rng.standard_normal((5, 128)) for _ in range(80))
    return model(body), [{"x": one.astype(np.float32)} for one in made]


@pytest.mark.generated
@pytest.mark.parametrize("options", CORRELATED)
@pytest.mark.parametrize("body", [MATMUL, "y = Gemm <transB = 1> (x, g, b)", QKV])
def test_errors_that_are_fed_back_cancel_where_channels_correlate(options, body):
    source, data = correlated(body)
    results = [compiled(source, f"cpu-int8:{options}", data=data[:60], refine=by) for by in ("scales", "feedback")]
    before, after = (dovetail.verify(source, one, data[60:], plugins=plugins()).worst_snr_db for one in results)
    assert after > before + 3
    assert formats(results[0]) == formats(results[1])
    assert [r for r in results[1].remarks if r.rule == "feedback" and r.kind == "passed" and "fed back" in r.why]


def test_the_head_that_shares_the_embedding_feeds_back_its_errors():
    source = model(TIED, "int64[5] i")
    rng = np.random.default_rng(7)
    data = [{"i": np.minimum(rng.geometric(0.2, 5), 499)} for _ in range(60)]
    result = compiled(
        source, f"{INT4},embedding=as-weights,kernel=nbits,accuracy_level=1", data=data, refine="feedback"
    )
    fed_back = [r.why for r in result.remarks if r.rule == "feedback"]
    assert len(fed_back) == 2  # the product and the head
    assert np.isfinite(result.run(data[0])["y"]).all()


def test_data_alone_refines_weights_in_few_bits_and_without_it_a_remark_says_what_would_help():
    source, data = correlated(MATMUL)
    given, bare = compiled(source, data=data), compiled(source)
    assert {r.rule for r in given.remarks if r.kind == "passed"} >= {"feedback"}
    (remark,) = [r for r in bare.remarks if r.rule == "refine"]
    assert remark.why.startswith("without data, cpu-int8 leaves out refinements")
    assert not [r for r in compiled(source, data=data, refine="none").remarks if r.rule in ("refine", "feedback")]


def test_a_replayed_plan_has_the_integers_and_needs_no_data(tmp_path):
    source, data = correlated(QKV)
    first = compiled(source, data=data)
    first.save(tmp_path)
    again = compiled(source, plan=tmp_path / "plan.yaml")
    assert np.array_equal(first.run(data[0])["y"], again.run(data[0])["y"])


def test_the_integers_of_another_model_are_refused(tmp_path):
    source, data = correlated(MATMUL)
    compiled(source, data=data, refine="feedback").save(tmp_path)
    other = numpy_helper.from_array(-numpy_helper.to_array(source.graph.initializer[0]), "w")
    source.graph.initializer[0].CopyFrom(other)
    with pytest.raises(DovetailError):
        compiled(source, plan=tmp_path / "plan.yaml")


def test_scales_that_other_refinements_read_are_not_weighed():
    source, data = with_loud_channels()
    result = compiled(source, data=data, refine="rounding,scales")
    assert {r.kind for r in result.remarks if r.rule == "scales"} == {"missed"}


def test_a_replayed_plan_has_the_factors_and_needs_no_data(tmp_path):
    source, data = with_loud_channels()
    scaled = compiled(source, data=data, refine="smooth")
    scaled.save(tmp_path / "out")
    again = compiled(source, plan=tmp_path / "out" / "plan.yaml")
    found = [onnx_ir.to_proto(one.model.ir).SerializeToString() for one in (scaled, again)]
    exact, replayed = (run(content, data[0]) for content in found)
    np.testing.assert_array_equal(exact, replayed)


def test_with_data_a_size_goes_to_the_weights_whose_channels_are_loud():
    source = model("a = MatMul (x, w) b = MatMul (z, v) y = Add (a, b)", "float[5,128] x, float[5,128] z")
    # The error of `w` lies in channels that are silent on the data, and that of `v` does not.
    weights = {name: np.full((128, 128), 0.5, np.float32) for name in "wv"}
    rng = np.random.default_rng(4)
    for weight in weights.values():
        weight[:64] = rng.standard_normal((64, 128))
    del source.graph.initializer[:]
    source.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    silent, loud = np.ones((5, 128), np.float32), np.ones((5, 128), np.float32)
    silent[:, :64], loud[:, 64:] = 0.0, 1e-3
    wide = []
    for data in ([{"x": silent, "z": loud}], [{"x": loud, "z": silent}]):
        found = formats(compiled(source, data=data, max_size=31_000))
        wide.append([name for name, format_ in found.items() if format_.startswith("int8")])
    assert wide == [["v"], ["w"]]
