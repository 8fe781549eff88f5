"""The shipped data: policies for every operator, edge kinds for every port, files that fit the meta-schema."""

import csv
import json
import subprocess
import sys

import pytest
from dovetail_schemas import load_backend, load_operator_facts, peek_backend
from dovetail_schemas.backend_file import FILE_KEYS, VARIANT_KEYS
from dovetail_schemas.entries import RULE_KEYS
from dovetail_schemas.operators import FLOATS, operator_names, signature
from dovetail_schemas.policy_file import POLICIES, load_policies
from dovetail_schemas.rules import ROLES, ROW_KEYS
from dovetail_schemas.type_specs import DTYPES
from dovetail_schemas.yaml_source import load_tree
from onnx import defs

CODES = {
    "LP": "lower", "F32": "fp32", "SCH": "fp32", "PRO": "promote", "PT": "pass", "SET": "fp32-accumulate",
    "APP": "fp32-accumulate", "RT": "fp32-round-trip", "CON": "follow-consumer", "REC": "recurse", "INT": "none",
}  # fmt: skip

FACTS = frozenset({
    "channel_multiplier", "dynamic_extents", "dynamic_graph", "foreign_activations", "indices_of_last_axis",
    "nested_bodies", "padded_pointwise", "reserved_rows", "resizes_channels", "rounds", "trip_outputs",
    "strided_to_one_column", "trips", "wide_integers",
})  # fmt: skip


def policies(schemas, name):
    return load_policies(schemas / f"policies/{name}.yaml", lambda beside, other: beside.parent / f"{other}.yaml")


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_every_operator_has_a_policy(name, schemas):
    listed = {op_type for _, op_type in policies(schemas, name).policy}
    assert operator_names("") - listed == set()


@pytest.mark.parametrize(("name", "column"), [("fp16", "policy_cuda_fp16"), ("bf16", "policy_cpu_bf16")])
def test_policies_are_those_that_were_recorded(name, column, schemas, recorded):
    table = recorded / "autocast/onnx_policy.csv"
    ours = policies(schemas, name)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) > 200
    assert {row["op"]: ours.policy.get(("", row["op"])) for row in rows} == {r["op"]: CODES[r[column]] for r in rows}
    for row in rows:
        kept = row["keep_float32_inputs"]
        ports = signature("", row["op"], None).inputs
        wanted = (
            {port.name for port in ports if port.dtypes & FLOATS} if kept == "*" else set(filter(None, kept.split(";")))
        )
        assert (row["op"], ours.keep.get(("", row["op"]), frozenset())) == (row["op"], wanted)


def facts(schemas):
    return load_operator_facts(schemas / "ops/onnx.yaml")


SHAPE, INDEX, DATA = "shape", "index", "data"


@pytest.mark.parametrize(
    ("op_type", "port", "kind"),
    [
        ("Reshape", "shape", SHAPE), ("Reshape", "data", DATA), ("Pad", "pads", SHAPE),
        ("ConstantOfShape", "input", SHAPE),
        ("Resize", "scales", SHAPE), ("Loop", "M", SHAPE), ("Loop", "cond", DATA), ("OneHot", "depth", SHAPE),
        ("OneHot", "indices", INDEX), ("TopK", "K", SHAPE), ("Gather", "indices", INDEX),
        ("LSTM", "sequence_lens", INDEX),
        ("RotaryEmbedding", "position_ids", INDEX), ("Conv", "X", DATA), ("NoSuchOperator", "X", DATA),
    ],
)  # fmt: skip
def test_kind_of_an_input(op_type, port, kind, schemas):
    assert facts(schemas).input_kind("", op_type, port) == kind


@pytest.mark.parametrize(
    ("op_type", "port", "kind"),
    [
        ("Shape", "shape", SHAPE), ("Size", "size", SHAPE), ("TopK", "Indices", INDEX), ("TopK", "Values", DATA),
        ("ArgMax", "reduced", INDEX), ("NonZero", "Y", INDEX), ("MaxPool", "Indices", INDEX), ("Relu", "Y", DATA),
    ],
)  # fmt: skip
def test_kind_of_an_output(op_type, port, kind, schemas):
    assert facts(schemas).output_kind("", op_type, port) == kind


def test_a_range_of_floats_is_data(schemas):
    known = facts(schemas)
    assert known.input_kind("", "Range", "start") == SHAPE
    assert known.input_kind("", "Range", "start", integer=False) == DATA
    assert known.input_kind("ai.onnx", "Range", "start", integer=False) == DATA


INTEGER_DATA = {"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "BitShift", "TfIdfVectorizer"}


def test_every_port_that_is_always_an_integer_has_a_kind(schemas):
    """A port that takes int64 and no float is a shape or an index, but for bits and for words by number."""
    known = facts(schemas)
    missing = []
    for op_type in operator_names("") - INTEGER_DATA:
        found = signature("", op_type, defs.onnx_opset_version())
        for ports, kind_of in ((found.inputs, known.input_kind), (found.outputs, known.output_kind)):
            missing += [
                f"{op_type}.{port.name}"
                for port in ports
                if "int64" in port.dtypes and not port.dtypes & FLOATS and kind_of("", op_type, port.name) == DATA
            ]
    assert missing == []


def test_the_groups(schemas):
    groups = facts(schemas).groups
    assert {"Reshape", "Concat"} <= groups["data-movement"]
    assert set(groups) == {
        "data-movement", "pooling", "compare", "products", "activations", "bent", "fused", "quantizers", "dequantizers",
        "extents", "index-sources", "random",
    }  # fmt: skip


def policies_of(schemas):
    return lambda kind, name: schemas / f"policies/{name}.yaml" if kind == "policy" else None


def test_cpu_bf16(backend_file, schemas):
    backend = load_backend(backend_file("cpu_bf16"), facts=FACTS, find=policies_of(schemas))
    assert (backend.low, backend.high, backend.opset, backend.dynamic) == ("bfloat16", "float32", (22, 26), "accept")
    assert (backend.strategy, backend.facts) == ("autocast", FACTS)
    assert backend.engines == ("openvino-cpu", "onnxruntime-cpu", "reference")
    assert backend.policy("", "Exp") == "pass"  # bf16.yaml
    assert backend.policy("", "Conv") == "lower"  # fp16.yaml, which it extends
    assert backend.rule("", "Resize").keep == {"roi", "scales"}
    assert peek_backend(backend_file("cpu_bf16"))[:4] == (
        "cpu-bf16", "AMX and AVX512-BF16 through OpenVINO", "cpu", ("openvino-cpu", "onnxruntime-cpu", "reference"),
    )  # fmt: skip


def meta_schema(schemas):
    return json.loads((schemas / "backend.schema.json").read_text())


def test_the_meta_schema_knows_what_the_loader_knows(schemas):
    schema = meta_schema(schemas)
    parts = schema["definitions"]
    assert parts["dtype"]["enum"] == list(DTYPES)
    assert parts["policy"]["enum"] == list(POLICIES)
    assert parts["role"]["enum"] == list(ROLES)
    assert set(schema["properties"]) == set(FILE_KEYS)
    assert set(parts["variant"]["properties"]) == {"when", "file", *VARIANT_KEYS}
    assert set(parts["rule"]["then"]["properties"]) == set(RULE_KEYS)
    assert set(parts["row"]["properties"]) == set(ROW_KEYS)


def test_the_meta_schema_is_valid(schemas):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft7Validator.check_schema(meta_schema(schemas))


def test_shipped_and_drafted_backends_fit_the_meta_schema(schemas, data, shipped):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft7Validator(meta_schema(schemas))
    for path in (*shipped, *data.glob("*.yaml")):
        tree = load_tree(path).plain()
        if "backend" in tree:  # others are laid over one, and are checked as its variants
            assert [error.message for error in validator.iter_errors(tree)] == [], path.name


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "cpu", "opset": 22},
        {"backend": "x", "device": "cpu"},
        {"backend": "x", "device": "cpu", "opset": "new"},
        {"backend": "x", "device": "cpu", "opset": 22, "polices": "fp16"},
        {"backend": "x", "device": "cpu", "opset": 22, "ops": {"Conv": "refused"}},
        {"backend": "x", "device": "cpu", "opset": 22, "ops": {"Conv": {"role": "activ"}}},
        {"backend": "x", "device": "cpu", "opset": 22, "types": {"q": {"dtype": "int9"}}},
    ],
)
def test_the_meta_schema_refuses(wrong, schemas):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    assert not jsonschema.Draft7Validator(meta_schema(schemas)).is_valid(wrong)


def test_importing_and_listing_needs_no_onnx(backend_file):
    code = (
        "import sys, pathlib, dovetail_schemas as s\n"
        f"print(s.peek_backend(pathlib.Path({str(backend_file('cpu_bf16'))!r})).name)\n"
        "print([name for name in ('onnx', 'onnx_ir', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["cpu-bf16", "[]"]
