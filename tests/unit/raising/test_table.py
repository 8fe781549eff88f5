"""The table of raising, held against onnx's schemas: every change that a schema shows has a row."""

import itertools

import onnx
import pytest
from dovetail_transforms.raising.raising import RaisingRow, load_table
from dovetail_transforms.raising.rules.all_rules import RULES

VERSIONS = {}
for one in onnx.defs.get_all_schemas_with_history():
    if one.domain == "":
        VERSIONS.setdefault(one.name, {})[one.since_version] = one
STEPS = [(name, *step) for name, known in sorted(VERSIONS.items()) for step in itertools.pairwise(sorted(known))]
EVERYWHERE = {"consumed_inputs"}  # a hint that is dropped from every node


def changes(older, newer):
    """What nodes of the older schema have that the newer one does not take, or lack that it asks for."""
    yield from (f"attribute {name}" for name in older.attributes.keys() - newer.attributes.keys() - EVERYWHERE)
    for name, attribute in newer.attributes.items():
        before = older.attributes.get(name)
        if attribute.required and (before is None or not before.required):
            yield f"{name} is required"
        if before is not None and before.type != attribute.type:
            yield f"type of {name}"
    if newer.min_input > older.min_input:
        yield "inputs"
    if newer.deprecated and not older.deprecated:
        yield "deprecated"
    for one, other in zip(older.inputs, newer.inputs, strict=False):
        if one.types - other.types:
            yield f"types of {one.name}"


@pytest.mark.parametrize(("name", "older", "newer"), STEPS)
def test_what_a_schema_changes_has_a_row(name, older, newer):
    found = list(changes(VERSIONS[name][older], VERSIONS[name][newer]))
    assert not found or load_table().get((name, newer), RaisingRow()) != RaisingRow(), found


@pytest.mark.parametrize(("name", "version"), load_table())
def test_a_row_is_of_a_version_and_names_a_rule(name, version):
    row = load_table()[name, version]
    assert version in VERSIONS[name], "the operator did not change in this opset"
    assert version != min(VERSIONS[name])
    assert not row.rewrite or row.rewrite in RULES
    assert not row.becomes or row.becomes in VERSIONS


def test_all_rules_are_used():
    assert {row.rewrite for row in load_table().values()} - {""} == set(RULES)
