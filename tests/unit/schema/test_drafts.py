"""Whole backend files on real nodes: rows that are easily read wrongly."""

import pytest
from dovetail_schemas import RuleJudge, load_backend

FACTS = {"residual_add": lambda n: False, "zeros": lambda n: 0, "extent": lambda n: 512,
         "padded_channels": lambda n: 64}  # fmt: skip


@pytest.fixture
def judge(data, schemas, node):
    def find(kind, name):
        return schemas / f"policies/{name}.yaml" if kind == "policy" else None

    def run(file, text, opset=11, domains="", **options):
        backend = load_backend(data / f"{file}.yaml", find, options, frozenset(FACTS))
        return RuleJudge(backend, FACTS, opset)(node(text, opset, domains))

    return run


def reasons(verdict):
    return list(map(str, verdict.reasons))


CONV = "(float[1,{c},32,32] x, float[8,{c},{k}] w) => (float y) {{ y = Conv{a}(x, w) }}"


@pytest.mark.parametrize(
    ("file", "options", "conv", "expected"),
    [
        ("bpu_int8", {}, {"c": 3, "k": "7,7", "a": "<strides=[2,2]>"}, []),  # the stem of a ResNet
        ("bpu_int8", {}, {"c": 3641, "k": "3,3", "a": ""},
         ["KH*KW*Cg = 32769 (Cg = 3641, KH = 3, KW = 3); allowed: ..32768 [bpu_int8.yaml:26]"]),
        ("bpu_int8", {}, {"c": 8, "k": "3,3", "a": "<dilations=[3,3]>"},
         ["dilations = [3, 3]; allowed: pow2 [bpu_int8.yaml:30]"]),
        ("bpu_int8", {"march": "bayes"}, {"c": 8, "k": "9,9", "a": ""}, []),
        ("bpu_int8", {"march": "bayes"}, {"c": 8, "k": "32,1", "a": ""},
         ["KH = 32; allowed: 1..31 [bpu_int8.yaml:102]"]),
        ("acme_npu", {}, {"c": 8, "k": "5,5", "a": ""}, []),
        ("acme_npu", {}, {"c": 8, "k": "7,7", "a": ""},
         ["KH = 7; allowed: 1..5 [acme_npu.yaml:8]", "KW = 7; allowed: 1..5 [acme_npu.yaml:8]"]),
        ("acme_npu", {}, {"c": 8, "k": "1,1", "a": "<strides=[2,1]>"},
         ["SH = 2; allowed: =SW (SW = 1) [acme_npu.yaml:10]"]),
    ],
)  # fmt: skip
def test_conv(file, options, conv, expected, judge):
    verdict = judge(file, CONV.format(**conv), **options)
    assert reasons(verdict) == expected
    if not expected:
        wide = options.get("march") == "bayes"
        formats = {port: tuple(map(str, allowed)) for port, allowed in verdict.types.items()}
        data = ("int8[symmetric]", "int16[symmetric]") if wide else ("int8[symmetric]",)
        assert formats == {"X": data, "W": ("int8[symmetric,axis=0]",), "Y": data}


@pytest.mark.parametrize(
    ("file", "text", "ok"),
    [
        ("bpu_int8", "(float[2,8] a, float[4,8] b) => (float y) { y = Gemm<transB=1>(a, b) }", True),
        ("bpu_int8", "(float[1,64,8,8] a, float[64,1,1] b) => (float y) { y = Mul(a, b) }", True),
        ("bpu_int8", "(float[1,64,8,8] a, float[8] b) => (float y) { y = Mul(a, b) }", False),
        ("bpu_int8", "(float[1,64,4,4] x) => (float y) { y = Softmax<axis=1>(x) }", True),
        ("bpu_int8", "(float[1,64,4,4] x) => (float y) { y = Softmax<axis=-1>(x) }", False),
        ("bpu_int8", "(float[1,64,4,4] x) => (float y) { y = ReduceMean<axes=[-1,-2]>(x) }", True),
        ("bpu_int8", "(float[1,64,4,4] x) => (float y) { y = ReduceMean<axes=[1]>(x) }", False),
        ("bpu_int8", "(float[n,64,4,4] x) => (float y) { y = Cos(x) }", False),  # dynamic: refuse
        ("bpu_int8", "(float[1,64,h,4] x) => (float y) { y = Cos(x) }", False),
        ("bpu_int8", "(float[1,4,8,8] x) => (float y, float z) { y, z = Split<axis=1>(x) }", True),
        ("bpu_int8", "(float[1,4,8,8] x) => (float y, float z) { y, z = Split<axis=1, split=[1,3]>(x) }", False),
        ("bpu_int8", "(float[1,1,2,2] x) => (float y) { y = Det(x) }", False),
        ("acme_npu", "(float[1,4,8,8] x) => (float y) { y = Sigmoid(x) }", False),
        ("acme_npu", "(float[1,4,8,8] x) => (float y) { y = com.acme.FusedMlp(x) }", True),
        ("ppl_int8", "(float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Relu(x) }", True),
        ("ppl_int8", "(float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Exp(x) }", False),
        ("gpu_fp16", "(float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Tan(x) }", False),
        ("tensorrt", "(float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Tanh(x) }", True),
        ("tensorrt", "(float[1,4,8,8] x) => (float y) { y = AveragePool<kernel_shape=[2,2]>(x) }", True),
        ("tensorrt", "(float[1,4,8] x) => (float y) { y = AveragePool<kernel_shape=[2]>(x) }", False),
    ],
)
def test_rows_that_are_easily_read_wrongly(file, text, ok, judge):
    verdict = judge(file, text, domains=', "com.acme": 1')
    assert (verdict.ok, reasons(verdict)) == (ok, [] if ok else reasons(verdict))


def test_rows_choose_a_policy(judge):
    verdict = judge("gpu_fp16", "(float[1,512] x) => (float[1,1] y) { y = ReduceMean<axes=[1]>(x) }", opset=13)
    assert (verdict.ok, verdict.policy, verdict.row) == (True, "pass", 0)


def test_a_variant_of_versions(data, schemas):
    def load(**options):
        return load_backend(data / "tensorrt.yaml", lambda kind, name: schemas / f"policies/{name}.yaml", options)

    assert load().rule("", "NonMaxSuppression").status == "refuse"
    assert load(version="10").rule("", "NonMaxSuppression").status == "ok"
