"""The table of `docs/decompositions.md` is that of the rules, and every operator has cases."""

import runpy
from pathlib import Path

from dovetail_transforms.decompositions.rules.all_rules import FAMILIES, RULES

ROOT = Path(__file__).parents[3]
TOOL = str(ROOT / "plugins/transforms/tools/generate_tables.py")


def test_the_table_is_fresh():
    page = (ROOT / "docs/decompositions.md").read_text(encoding="utf-8")
    assert runpy.run_path(TOOL)["generated"](page) == page
    assert page.count("<!-- table: operators -->") == 1


def test_a_changed_row_is_noticed():
    page = runpy.run_path(TOOL)["generated"]("<!-- table: operators -->\nnothing\n<!-- end of table -->")
    assert "| BiasGelu | Gelu of `A + B`. | its kernel |" in page


def test_every_operator_has_a_sentence_and_one_family():
    assert all(rule.__doc__ for rule in RULES.values())
    assert len(RULES) == sum(len(family.RULES) for family in FAMILIES)
