"""The table knows every change of every operator that onnx's schemas show."""

import onnx
import pytest
from dovetail_transforms.lowering.node_facts import CONDITIONS
from dovetail_transforms.lowering.rules.all_rules import RULES
from dovetail_transforms.lowering.steps import load_table

VERSIONS: dict[str, dict[int, onnx.defs.OpSchema]] = {}
for schema in onnx.defs.get_all_schemas_with_history():
    if not schema.domain:
        VERSIONS.setdefault(schema.name, {})[schema.since_version] = schema
STEPS = [
    (op_type, before, after)
    for op_type, found in VERSIONS.items()
    for before, after in zip(sorted(found), sorted(found)[1:])
    if after > 11 and not found[after].deprecated
]


def form(schema):
    """What a node must be written like, without types."""
    attributes = {
        name: (str(given.type), given.required, str(given.default_value)) for name, given in schema.attributes.items()
    }
    return attributes, [str(port.option) for port in schema.inputs], len(schema.outputs)


# Attributes and ports that differ, where a node is taken as it is written or refused with the reason.
COMPARED = {
    ("BatchNormalization", 14), ("GRU", 14), ("LSTM", 14), ("RNN", 14),
    ("OptionalHasElement", 18), ("TensorScatter", 24),
}  # fmt: skip


@pytest.mark.parametrize(("op_type", "before", "after"), STEPS, ids=lambda part: str(part))
def test_a_change_of_form_has_a_row(op_type, before, after):
    if form(VERSIONS[op_type][before]) != form(VERSIONS[op_type][after]):
        assert (op_type, after) in load_table() or (op_type, after) in COMPARED


def test_every_row_is_about_a_version_that_exists():
    assert [key for key in load_table() if key[1] not in VERSIONS.get(key[0], {})] == []


def test_every_rule_and_condition_exists_and_is_used():
    rows = load_table().values()
    assert {row.rewrite for row in rows} - {""} == set(RULES)
    assert {row.unless for row in rows} - {""} == set(CONDITIONS)


def test_what_changed_says_when_it_did_not_or_is_rewritten():
    assert [key for key, row in load_table().items() if row.changed and not (row.unless or row.rewrite)] == []


@pytest.mark.parametrize(("op_type", "version"), [key for key, row in load_table().items() if row.function])
def test_a_function_has_a_body(op_type, version):
    schema = VERSIONS[op_type][version]
    assert schema.function_opset_versions or schema.context_dependent_function_opset_versions
