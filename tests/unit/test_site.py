"""The site has every page, and its links lead to pages; `mkdocs build --strict` of .ci/run builds it."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/_site/hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation(hooks):
    assert set(re.findall(r"[\w./]+\.md", NAV)) == {*hooks.all_pages().values(), *hooks.python_pages()}


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/guides/engine.md", "[files](../backend_files.md#emit)", "[files](../backend_files.md#emit)"),
        ("docs/README.md", "[host](../backends/host/README.md)", "[host](backends/host.md)"),
        ("backends/host/README.md", "[files](../../docs/backend_files.md)", "[files](../backend_files.md)"),
        ("README.md", "[words](docs/concepts.md), [here](#start)", "[words](concepts.md), [here](#start)"),
        ("docs/tutorials/deploy.md", "![graph](../images/g.png)", "![graph](../images/g.png)"),
        ("plugins/report/README.md", "![graph](../../docs/images/g.png)", "![graph](../images/g.png)"),
        ("README.md", '<img src="docs/images/g.svg">', '<img src="../images/g.svg">'),
        ("docs/plugins.md", "[tests/example_tools](../tests/example_tools)", "tests/example_tools"),
        ("docs/plugins.md", "[`ppl_json.py`](../backends/ppl_int8/src/ppl_json.py)", "`ppl_json.py`"),
        ("docs/plugins.md", "```python\na[0](b)\n```", "```python\na[0](b)\n```"),
        ("docs/plugins.md", "[onnx](https://onnx.ai)", "[onnx](https://onnx.ai)"),
    ],
)
def test_links_fit_the_site(hooks, page, text, expected):
    assert hooks.rewritten(text, page, hooks.all_pages()) == expected


def test_every_public_name_has_one_place(hooks):
    import dovetail
    import dovetail.plugin

    pages = hooks.python_pages()
    shown = re.findall(r"^::: ([\w.]+)$", "\n".join(pages.values()), re.MULTILINE)
    names = [path.rpartition(".")[2] for path in shown]
    assert len(names) == len(set(names))
    assert set(names) == {*dovetail.__all__, *dovetail.plugin.__all__} - {"__version__"}
