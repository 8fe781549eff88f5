"""The tables of `docs/lowering.md` are those of the data."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tables_are_fresh():
    tool = runpy.run_path(str(ROOT / "plugins/transforms/tools/generate_tables.py"))
    page = (ROOT / "docs/lowering.md").read_text(encoding="utf-8")
    assert tool["generated"](page) == page
    assert page.count("<!-- table: ") == len(tool["lowering"]())


def test_a_changed_row_is_noticed():
    tool = runpy.run_path(str(ROOT / "plugins/transforms/tools/generate_tables.py"))
    assert tool["generated"]("<!-- table: refused -->\nnothing\n<!-- end of table -->").startswith(
        "<!-- table: refused -->\nAffineGrid (20), "
    )
