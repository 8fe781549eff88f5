"""The pages: their links lead somewhere, the words have the names that they give, and the architecture stays short."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/*/README.md"))]
WORDS = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")


def anchors(page):
    """The anchors of the headings of a page, as renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        if not target.exists() or anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{link}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/reference").glob("*.md")), ids=lambda page: page.stem)
def test_modules_that_the_reference_names_exist(page):
    files = [path.as_posix() for path in ROOT.rglob("*.py") if ".git" not in path.parts]
    named = set(re.findall(r"`([\w./]+\.py)`", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(dovetail[\w.]*\.\w+)(?:\(|`)", WORDS))))
def test_words_are_called_in_the_code_what_the_page_says(name):
    module, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        pytest.fail(f"no module {module}")
    assert hasattr(found, attribute) or importlib.util.find_spec(name), name


def test_the_architecture_is_read_in_ten_minutes():
    assert len((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split()) < 3000
