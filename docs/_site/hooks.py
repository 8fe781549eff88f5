"""Hooks of mkdocs: pages that stand outside of `docs/`, the pages of Python names, and links that fit both.

On a code host, pages link to files of the repository by relative paths. On the site, links to pages lead to these, and
links to anything else, such as sources, become plain text: the site needs no network and no code host.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]*)(#[^)\s]*)?\)")
_IN_HTML = re.compile(r'\b(src|srcset)="([^":]+)"')
_PICTURES = "docs/images/"
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)


def outside_pages() -> dict[str, str]:
    """Return pages of the repository that stand outside of `docs/`: their paths on the site, by their own."""
    found = {"README.md": "overview.md", "bench/RESULTS.md": "results.md"}
    for path in sorted(ROOT.glob("backends/*/README.md")):
        found[path.relative_to(ROOT).as_posix()] = f"backends/{path.parent.name}.md"
    for path in sorted(ROOT.glob("plugins/*/README.md")):
        found[path.relative_to(ROOT).as_posix()] = f"parts/{path.parent.name}.md"
    return found


def python_pages() -> dict[str, str]:
    """Return the pages of Python names: the text of each by its path on the site."""
    titles = {
        "dovetail": "What programs use: functions, models, results, errors. Distributions add more functions.",
        "dovetail.plugin": "What plugins use: the contracts of everything that a plugin may bring.",
    }
    pages: dict[str, str] = {}
    shown: set[str] = set()  # a name has one place; other pages name it
    for module, about in titles.items():
        names = _public(module)
        parts = [f"# `{module}`", about]
        if known := [name for name in names if name in shown]:
            parts.append(f"On the other page: {', '.join(f'`{name}`' for name in known)}.")
        parts += [f"::: {path}" for name, path in names.items() if name not in shown]
        pages[f"api/{module}.md"] = "\n\n".join(parts) + "\n"
        shown.update(names)
    return pages


def _public(module: str) -> dict[str, str]:
    """Return the names that a module exports, each with the path of its definition, from its stub."""
    stub = ROOT / "core/src" / module.replace(".", "/") / "__init__.pyi"
    found: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dovetail"):
            found |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rewritten(text: str, own: str, pages: dict[str, str]) -> str:
    """Return a page with links for the site.

    Args:
        text: The page.
        own: Its path in the repository.
        pages: All pages: their paths on the site, by those in the repository.
    """
    here = posixpath.dirname(pages[own])

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target)) if target else own
        if path in pages:
            return f"[{label}]({posixpath.relpath(pages[path], here or '.')}{anchor})"
        if path.startswith(_PICTURES):
            return f"[{label}]({posixpath.relpath(path.removeprefix('docs/'), here or '.')})"
        return label if "`" in label or label != target else f"`{label}`"

    def picture(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(own), found[2]))
        # HTML stays as it is, and a page `a.md` is served as `a/`.
        return f'{found[1]}="{posixpath.relpath(path.removeprefix("docs/"), pages[own].removesuffix(".md"))}"'

    parts = _FENCE.split(text)
    fenced = False
    for at, part in enumerate(parts):
        if part in ("```", "~~~"):
            fenced = not fenced
        elif not fenced:
            parts[at] = _IN_HTML.sub(picture, _LINK.sub(link, part))
    return "".join(parts)


def all_pages() -> dict[str, str]:
    """Return all pages that exist as files: their paths on the site, by those in the repository."""
    docs = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))
    return {**{path: path.removeprefix("docs/") for path in docs}, **outside_pages()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and those of Python names."""
    from mkdocs.structure.files import File

    for own, path in outside_pages().items():
        text = (ROOT / own).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=rewritten(text, own, all_pages())))
    for path, text in python_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of pages in `docs/`."""
    own = f"docs/{page.file.src_uri}"
    return rewritten(markdown, own, all_pages()) if (ROOT / own).is_file() else markdown
