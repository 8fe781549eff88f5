"""Remarks: the reasons of decisions, as data from which their text is made."""

import json

import pytest
from dovetail.planning import Remark
from dovetail.plugin import remedy
from dovetail_commands.explain.remedies import cause_among
from dovetail_onnx.results.remark_file import grouped, ungrouped

FACTS = {"reasons": [{"text": "K = 9; allowed: 1..7", "source": "a.yaml:3", "term": "K", "found": 9}]}
REFUSED = Remark("missed", "conv", "place", "not-supported", "K = 9; allowed: 1..7", backend="acme", facts=FACTS)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "missed", "backend": "acme"}, "not on acme: too long"),
        ({"kind": "failed", "backend": "acme"}, "not on acme: too long"),
        ({"kind": "missed", "backend": "acme", "format": "int8"}, "not in int8 on acme: too long"),
        ({"kind": "missed"}, "too long"),
        ({"kind": "passed", "backend": "acme"}, "too long"),
    ],
)
def test_the_sentence_begins_with_where_the_node_is_not(fields, why):
    assert Remark(node="n", pass_="place", rule="r", reason="too long", **fields).why == why


@pytest.mark.parametrize(
    "remark",
    [
        REFUSED,
        Remark("missed", "relu", "place", "manual", "on request", remedy=remedy(("relu=acme",)), backend="acme"),
        Remark("missed", "relu", "place", "manual", "on request", remedy=remedy(options={"a": "1"}, backend="acme")),
        Remark("analysis", "", "place", "note", "a fact", advice="pip install acme", source="a.yaml:1"),
        Remark("passed", "b", "join", "cast", "as 'a' is", because=("a",)),
    ],
    ids=lambda remark: remark.rule + (" options" if remark.remedy and remark.remedy.options else ""),
)
def test_a_remark_survives_its_file(remark):
    other = Remark(remark.kind, "other", remark.pass_, remark.rule, remark.reason.replace("'a'", "'b'"))
    text = json.dumps(grouped([remark, other]))
    assert set(ungrouped(json.loads(text))) == {remark, other}


def test_many_nodes_share_a_line_with_their_facts():
    remarks = [Remark("missed", f"n{i}", "place", "r", f"it reads 'v{i}'", backend="acme") for i in range(5)]
    (line,) = grouped(remarks)
    assert (line["why"], line["reason"]) == ("not on acme: it reads '{}'", "it reads '{}'")
    assert list(ungrouped([line])) == remarks


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"facts": [1]}, "facts"),
        ({"backend": 3}, "not text"),
        ({"remedy": {"pins": "a=b"}}, "remedy"),
        ({"remedy": {"pins": [3]}}, "not text"),
        ({"remedy": ["a"]}, "remedy"),
        ({"kind": "perhaps"}, "kind"),
        ({"because": "conv"}, "not text"),
    ],
    ids=str,
)
def test_a_damaged_remark_is_named(damage, said):
    with pytest.raises(ValueError, match=said):
        Remark.from_dict(REFUSED.as_dict() | damage)


def test_a_backend_is_not_told_what_was_said_of_one_with_a_longer_name():
    """`acme` and `acme-2` were told apart by how sentences begin."""
    node = type("Node", (), {"name": "conv", "backend": "host"})()
    of_other = Remark("missed", "conv", "place", "opset", "it is too new", backend="acme-2")
    said = [of_other, Remark("missed", "conv", "place", "not-supported", "K = 9", backend="acme")]
    assert cause_among(said, node, "acme").why == "K = 9"
    assert cause_among(said, node, "acme-2").why == "it is too new"
