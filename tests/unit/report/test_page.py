"""The page: whatever a model is called, it stays data."""

import base64
import hashlib
import html.parser
import json
import re

import dovetail
import onnx
import pytest
from dovetail.errors import UsageError
from dovetail_report.outputs import check_output
from dovetail_report.page import asset, json_text

HOSTILE = [
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "<!--<script>", "]]>", "&lt;b&gt;",
    "'\"`${1}",
    "\u2028\u2029\x00\x1b[31m", "\u202egnp.exe", "a\ud800b", "x" * 1_000_000,
]  # fmt: skip


class Elements(html.parser.HTMLParser):
    """The elements of a page, and the text of each kind."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:20]))
def test_no_name_becomes_markup_or_breaks_the_data(model, name):
    try:
        name.encode()
    except UnicodeEncodeError:
        assert "\\ud800" in json_text({"name": name})  # no model can have it, but a file name can
        return
    plain = Elements(dovetail.report(dovetail.compile(model, "host")).html())
    model.graph.name = name
    model.graph.node[0].name = name
    model.graph.node[1].output[0] = model.graph.node[2].input[0] = name
    text = dovetail.report(dovetail.compile(model, "host", plugins=None)).html()
    page = Elements(text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    data = json.loads(page.texts["script"][0])
    assert len(text) < 600_000 and max(map(len, data["nodes"]["name"])) < 1000


def test_the_policy_allows_its_own_script_only(compiled):
    page = Elements(dovetail.report(compiled).html())
    (policy,) = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    digest = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'")
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert [attributes["href"] for _, attributes in page.tags if "href" in attributes] == ["data:,"]


def test_the_licenses_of_the_bundle_are_in_the_page(compiled):
    text = dovetail.report(compiled).html()
    for name in ("@dagrejs/dagre", "@dagrejs/graphlib"):
        assert re.search(rf"== {name} [\d.]+ \(MIT\)", text)
    assert "</script" not in asset("report.js")


def test_notebooks_show_the_page_in_a_frame(compiled):
    shown = dovetail.report(compiled)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;') and 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown


@pytest.mark.parametrize("name, why", [
    ("page.txt", "let it end in .html"), ("out/model.onnx", "let it end in .html"), ("page", "let it end in .html"),
])  # fmt: skip
def test_a_page_replaces_no_other_file(compiled, tmp_path, name, why):
    compiled.save(tmp_path / "out")
    with pytest.raises(UsageError) as caught:
        check_output(tmp_path / name, (".html",), [tmp_path / "out"])
    assert why in str(caught.value)


def test_no_export_replaces_the_model_of_the_result(compiled, tmp_path):
    compiled.save(tmp_path / "out")
    with pytest.raises(UsageError, match="is a file of the result"):
        check_output(tmp_path / "out" / "model.onnx", (".onnx",), [tmp_path / "out"])


def test_netron_shows_reasons_and_the_result_stays_as_it_is(compiled, tmp_path):
    from dovetail_report.exports import save_for_model_explorer, save_for_netron

    before = [dict(node.metadata_props) for node in compiled.model.nodes()]
    save_for_netron(compiled, tmp_path / "annotated.onnx")
    save_for_model_explorer(compiled, tmp_path / "data.json")
    model = onnx.load(tmp_path / "annotated.onnx")
    (soft,) = [node for node in model.graph.node if node.name == "soft"]
    known = {entry.key: entry.value for entry in soft.metadata_props}
    assert known["backend"] == "host" and "on host, as pin 'soft=host' says" in known["reason"]
    assert [dict(node.metadata_props) for node in compiled.model.nodes()] == before
    (graph,) = json.loads((tmp_path / "data.json").read_text()).values()
    assert graph["results"]["b"]["value"] == "host/float32"
