"""docs/reference/python.md has every field and keyword, and none that is not there."""

import dataclasses
import inspect
import re
from pathlib import Path

import dovetail
import pytest
from dovetail.passes import Request
from dovetail.planning import Plan, PlannedNode, QuantizedValue
from dovetail.plugin import Executed, load_plugins
from dovetail.plugin.options import installed_options

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")


def listed(heading, column):
    """The words in code in the first column of the tables below a heading, from the table with that column head on."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = section.partition(f"| {column} |")[2].partition("\n\n")[0]
    return {
        word for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for word in re.findall(r"`(\w[^`]*)`", row)
    }


@pytest.mark.parametrize(
    ("heading", "column", "kind"),
    [
        ("A request", "field", Request),
        ("A plan", "field", Plan),
        ("A plan", "field of `PlannedNode`", PlannedNode),
        ("A quantized value", "field", QuantizedValue),
    ],
)
def test_fields(heading, column, kind):
    assert listed(heading, column) == {field.name for field in dataclasses.fields(kind)}


def test_how_nodes_were_executed():
    known = set(re.findall(r"`([a-z-]+(?::<node>)?)`", inspect.getdoc(Executed).partition("how:")[2]))
    assert {word.replace("NODE", "<node>") for word in listed("What was executed", "`how`")} == known


def test_keywords():
    """Those of the functions, and those that the options of this repository add."""
    own = {
        name
        for function in (dovetail.compile, dovetail.plan)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    section = PAGE.partition("## `dovetail.compile` and `dovetail.plan`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"`(\w+)`", row.partition(" (")[0])}
    registry = load_plugins().registry
    added = {
        keyword
        for command in ("compile", "plan")
        for one in installed_options(registry, command)
        for keyword in one.option.keywords
    }
    assert words == own | added
