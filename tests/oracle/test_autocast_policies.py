"""The policies of PyTorch's autocast for every ONNX operator, recorded as a table, and the ones in our files."""

import csv
from pathlib import Path

import onnx.defs
import pytest
import yaml

SHEET = Path(__file__).parent / "autocast" / "onnx_policy.csv"
POLICIES = Path(__file__).parents[2] / "schemas" / "src" / "dovetail_schemas" / "policies"
COLUMNS = {"fp16": "policy_cuda_fp16", "bf16": "policy_cpu_bf16"}
CODES = {
    "LP": "lower", "F32": "fp32", "SET": "fp32-accumulate", "APP": "fp32-accumulate", "PRO": "promote", "PT": "pass",
    "RT": "fp32-round-trip", "INT": "none", "REC": "recurse", "CON": "follow-consumer",
    "SCH": "fp32",  # float32 by schema: what a policy says does not matter
}  # fmt: skip
# Where ours is another on purpose: (file, operator) -> (ours, why).
DIFFERENCES = {}
# Ports that stay float32 in the table: (file, operator) -> why ours are others.
PORTS = {
    "QLinearConv": "`*` in the table; by name here, the quantized ports are no floats",
    "DynamicQuantizeLinear": "`*` in the table; its only float input by name here",
    "TfIdfVectorizer": "`*` in the table; its schema takes float32 alone",
}


@pytest.fixture(scope="module")
def table():
    with SHEET.open(encoding="utf-8", newline="") as file:
        return {row["op"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_operator_has_the_policy_of_the_table(name, table):
    policies, _ = ours(name)
    different = {}
    for operator, row in table.items():
        expected = CODES[row[COLUMNS[name]]]
        if policies.get(operator) != expected:
            different[name, operator] = (policies.get(operator), expected)
    listed = {key: entry for key, entry in DIFFERENCES.items() if key[0] == name}
    assert different.keys() == listed.keys(), different
    assert {key: policy for key, (policy, _) in different.items()} == {key: entry[0] for key, entry in listed.items()}


def test_kept_ports_are_those_of_the_table(table):
    _, kept = ours("fp16")
    different = {}
    for operator, row in table.items():
        expected = [port for port in row["keep_float32_inputs"].split(";") if port]
        if kept.get(operator, []) != expected:
            different[operator] = (kept.get(operator), expected)
    assert different.keys() == PORTS.keys(), different


def test_the_table_has_every_operator_of_onnx(table):
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    assert known - table.keys() == set()


def ours(name):
    """Policy and kept ports by operator, in a file with what it extends."""
    tree = yaml.safe_load((POLICIES / f"{name}.yaml").read_text(encoding="utf-8"))
    policies, kept = ours(tree["extends"]) if "extends" in tree else ({}, {})
    policies |= {operator: policy for policy, operators in tree["policy"].items() for operator in operators}
    return policies, kept | tree.get("keep", {})
