"""Reports as users make them: the command, the option, bad input; and the page in a headless Chromium."""

import json
import os
import random
import shutil
from pathlib import Path
from xml.etree import ElementTree

import onnx
import onnx.parser
import pytest

from . import chromium

ROOT = Path(__file__).parents[2]
DIGITS, DATA = ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test.npz"
browser = pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture
def out(dovetail, tmp_path):
    """A result with its report."""
    found = dovetail("compile", DIGITS, "--backend", "cpu-bf16", "--pin", "conv_2=host", "--data", DATA, "--report",
                     "-o", "out")  # fmt: skip
    assert found.returncode == 0, found.stderr
    return tmp_path / "out"


def data_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def test_compile_writes_the_report_with_the_measured_accuracy(out):
    data = data_of(out / "report.html")
    assert data["accuracy"][0]["output"] == "probabilities" and data["accuracy"][0]["SNR dB"] > 30


def test_the_command_writes_it_with_sizes_and_findings(dovetail, out):
    found = dovetail("report", "out", "--json")
    assert found.returncode == 0 and json.loads(found.stdout)["files"] == ["report.html"]
    data = data_of(out.parent / "report.html")
    assert {row["file"] for row in data["files"]} >= {"model.onnx", "plan.yaml"}
    assert [finding["rule"] for finding in data["findings"] if finding["level"] == "warning"] == ["small-region"]


def test_bad_input_gives_no_traceback_and_costs_no_page(dovetail, out):
    page = out.parent / "report.html"
    page.write_text("earlier")
    (out.parent / "no_trace.json").write_text("[]")
    for arguments, code, why in (
        (("nothing",), 1, "no such file"),
        (("out", "-o", "out/model.onnx"), 2, "let it end in .html"),
        (("out", "--netron", "out/model.onnx"), 2, "is a file of the result"),
        (("out", "--trace", "no_trace.json"), 1, "is no timeline"),
        (("out", "nothing"), 1, "no such file"),
    ):
        found = dovetail("report", *arguments)
        assert (found.returncode, "Traceback" in found.stderr) == (code, False), found.stderr
        assert why in found.stderr
    assert page.read_text() == "earlier"


def test_a_result_that_is_half_there_is_refused_or_says_so(dovetail, out):
    (out / "plan.yaml").write_text("nonsense: [")
    (out / "remarks.json").unlink()
    found = dovetail("report", "out")
    assert found.returncode == 0, found.stderr
    whole = [row["why"] for row in data_of(out.parent / "report.html")["whole"]]
    assert any("plan.yaml is not the file that this model was saved with" in why for why in whole)
    model = (out / "model.onnx").read_bytes()
    (out / "model.onnx").write_bytes(model[: len(model) // 2])
    found = dovetail("report", "out")
    assert found.returncode == 1 and "Traceback" not in found.stderr


@browser
def test_the_page_works(dovetail, out):
    found = dovetail("report", "out", "-o", "page.html")
    assert found.returncode == 0, found.stderr
    with chromium.Chromium() as page:
        for theme in ("light", "dark"):
            page.theme(theme)
            page.open(out.parent / "page.html")
            text = page.run("document.getElementById('panels').innerText")
            assert "host 1" in text and "What stands in the way" in text and "13\nnodes of the plan" in text
            assert "was not saved" not in text and "model.onnx" in text
            for tab in ("Findings", "Nodes", "Borders", "Reasons", "Numbers", "Graph"):
                page.run(f"document.getElementById('tab-{tab}').click()")
                assert page.run("document.body.dataset.tab") == tab
        page.run("""{ const box = document.getElementById('search'); box.value = 'gemm dense_1';
                      box.dispatchEvent(new Event('input')); }""")
        assert page.run("document.getElementById('found').textContent") == "1 found"
        page.run("document.querySelector('#detail .list .link').click()")
        detail = page.run("document.getElementById('detail').innerText")
        assert "dense_1" in detail and "computed in bfloat16" in detail and "cpu_bf16.yaml:" in detail
        assert page.messages == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


PICTURES = ROOT / "docs/images"


@browser
def test_pictures_of_the_documentation_are_those_of_the_page(dovetail, out, tmp_path):
    """Taken here; with DOVETAIL_PICTURES=1 they replace those in `docs/images`."""
    folder = PICTURES if os.environ.get("DOVETAIL_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)
    assert dovetail("compile", DIGITS, "--backend", "cpu-bf16", "-o", "other").returncode == 0
    assert dovetail("report", "out", "other", "-o", "both.html").returncode == 0
    with chromium.Chromium() as page:
        page.theme("light")
        for file, tab in (("out/report.html", "Summary"), ("out/report.html", "Graph"), ("both.html", "Comparison")):
            page.open(out.parent / file)
            page.run(f"dovetailReport.show('{tab}')")
            page.run("new Promise(done => setTimeout(done, 800))")
            page.screenshot(folder / f"report-{tab.lower()}.png")
    for name in ("report-summary.png", "report-graph.png", "report-comparison.png"):
        taken, kept = ((place / name).read_bytes() for place in (folder, PICTURES))
        assert taken[:24] == kept[:24], "type, width and height"
        assert 0.5 < len(taken) / len(kept) < 2, f"{name} shows something else: take it again with DOVETAIL_PICTURES=1"


BOXES = """dovetailReport.view().drawing.boxes.map(one => one.key)"""


def graph_of(page, path):
    """Open a page at its graph."""
    page.open(path)
    page.run("dovetailReport.show('Graph')")
    page.run("new Promise(done => setTimeout(done, 300))")


def centre(page, key):
    """The middle of a box in the window."""
    return page.run(f"""(() => {{ const {{ camera, hierarchy }} = dovetailReport.view();
        const found = [hierarchy.root];
        for (const one of found) found.push(...(one.children ?? []));
        const {{ x, y, w, h }} = found.find(one => one.key === {json.dumps(key)});
        const box = document.querySelector('.drawing').getBoundingClientRect();
        const place = [[box.left, x + w / 2 - camera.x], [box.top, y + h / 2 - camera.y]];
        return place.map(([start, far]) => start + far * camera.scale); }})()""")


def press(page, key):
    """Press a key in the graph."""
    page.run(f"""document.querySelector('.drawing').dispatchEvent(
        new KeyboardEvent('keydown', {{ key: {json.dumps(key)}, bubbles: true }}))""")


@browser
def test_the_graph_shows_every_node_of_the_plan_as_a_box_at_a_size_that_can_be_read(out):
    for width, height in ((1400, 900), (2560, 1440)):
        with chromium.Chromium(width, height) as page:
            graph_of(page, out / "report.html")
            boxes = page.run(BOXES)
            names = data_of(out / "report.html")["nodes"]["name"]
            assert sorted(one for one in boxes if one.startswith("node=")) == sorted(f"node={name}" for name in names)
            assert page.run("dovetailReport.view().drawing.scale") > 0.8
            assert page.run("dovetailReport.view().drawing.edges.length") == len(names) + 4 + 1, (
                "a chain with four conversions"
            )


@browser
def test_groups_have_the_names_of_the_modules_that_nodes_were_exported_from(dovetail, tmp_path):
    operators = random.Random(0).choices(("Relu", "Neg", "Abs", "Exp", "Sin"), k=120)
    chain = "\n".join(f"[n{at}] v{at + 1} = {operator} (v{at})" for at, operator in enumerate(operators))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[4] v0) => (float[4] v120) {{{chain}}}'
    )
    for number, node in enumerate(model.graph.node):
        scopes = ["", "net", f"net.layers.{number // 20}", "call"]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
    onnx.save(model, tmp_path / "modules.onnx")
    made = dovetail("compile", "modules.onnx", "--backend", "host", "-o", "out", "--report")
    assert made.returncode == 0, made.stderr
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, tmp_path / "out" / "report.html")
        titles = page.run(
            "dovetailReport.view().hierarchy.root.children.flatMap(one => one.children ?? []).map(one => one.title)"
        )
        assert titles == [f"layers.{number}" for number in range(6)]


@browser
def test_regions_close_and_nodes_open_by_a_double_click(out):
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, out / "report.html")
        before = len(page.run(BOXES))
        page.run("dovetailReport.view().detail(0)")
        page.run("new Promise(done => setTimeout(done, 300))")
        assert len([one for one in page.run(BOXES) if one.startswith("region=")]) == 3
        x, y = centre(page, "region=2")
        page.mouse("mouseMoved", x, y)
        page.click(x, y, times=2)
        page.run("new Promise(done => setTimeout(done, 300))")
        assert len([one for one in page.run(BOXES) if one.startswith("region=")]) == 2
        assert "cpu-bf16, region 2" in page.run("document.getElementById('detail').innerText")
        page.run("dovetailReport.view().detail(2)")
        assert len(page.run(BOXES)) == before
        assert page.messages == []


@browser
def test_the_keyboard_reaches_everything(out):
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, out / "report.html")
        said = "document.querySelector('.said').textContent"
        press(page, "Home")
        seen = [page.run(said)]
        for _ in range(40):
            press(page, "ArrowDown")
            if page.run(said) != seen[-1]:
                seen.append(page.run(said))
        assert seen[0] == "input image" and seen[-1] == "output probabilities"
        assert "Conv conv_2, host, float32" in seen and "cast of image from float32 to bfloat16" in seen
        assert page.run("location.hash") == "#output=probabilities"
        press(page, "d")
        assert page.run(said) == "left to right"
        press(page, "Escape")
        assert page.run("document.getElementById('detail').hidden") and page.run("location.hash") == ""
        press(page, "/")
        assert page.run("document.activeElement.id") == "search"
        assert page.messages == []


@browser
def test_an_address_leads_to_a_node_and_a_pin_is_a_command(out):
    with chromium.Chromium(1400, 900) as page:
        page.open(out / "report.html")
        page.run("location.hash = '#node=pool_2'")
        page.run("new Promise(done => setTimeout(done, 300))")
        assert page.run("document.body.dataset.tab") == "Graph"
        assert page.run("document.getElementById('detail').innerText").startswith("×\nMaxPool pool_2")
        page.run("[...document.querySelectorAll('#detail .bar button')].find(one => one.innerText === 'host').click()")
        pinned = page.run("document.querySelector('#detail .command code').innerText")
        assert pinned.startswith("dovetail compile ") and pinned.endswith("--pin pool_2=host")


@browser
def test_a_path_between_two_nodes_and_who_forced_what(out):
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, out / "report.html")
        item = "dovetailReport.result.byName('{}')"
        page.run(f"dovetailReport.view().showPath({item.format('conv_1')}, {item.format('pool_1')})")
        assert page.run("dovetailReport.view().way.map(one => dovetailReport.result.label(one))") == [
            "conv_1", "relu_1", "cast relu_1_out", "conv_2", "relu_2", "pool_1",
        ]  # fmt: skip
        forced = """{ const { result } = dovetailReport;
            const found = [...Array(result.items).keys()].find(one => result.reasonsOf(one).some(({ because }) =>
                because.some(name => result.byName(name) !== undefined && result.byName(name) !== one)));
            dovetailReport.go(`n${found}`); }"""
        page.run(forced)
        assert page.run("dovetailReport.view().state.causes.length") >= 1
        texts = {one.text for one in ElementTree.fromstring(page.run("dovetailReport.view().svg()")).iter()}
        assert "forced this" in texts


@browser
def test_the_minimap_moves_the_view(out):
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, out / "report.html")
        minimap = "document.querySelector('.minimap')"
        assert page.run(f"{minimap}.hidden"), "all of it is in view"
        for _ in range(8):
            press(page, "+")
        page.run("new Promise(done => setTimeout(done, 300))")
        assert not page.run(f"{minimap}.hidden")
        before = page.run("dovetailReport.view().camera.y")
        box = page.run(
            f"(({{ left, bottom, width }}) => [left + width / 2, bottom - 6])({minimap}.getBoundingClientRect())"
        )
        page.click(*box)
        page.run("new Promise(done => setTimeout(done, 300))")
        assert page.run("dovetailReport.view().camera.y") > before


@browser
def test_the_drawing_is_saved_as_svg(out):
    with chromium.Chromium(1400, 900) as page:
        graph_of(page, out / "report.html")
        text = page.run("dovetailReport.view().svg()")
    root = ElementTree.fromstring(text)
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Conv", "conv_1", "Softmax", "softmax_1", "image", "probabilities"} <= texts


AXE = ROOT / "plugins/report/web/node_modules/axe-core/axe.min.js"


@browser
@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here: npm ci in plugins/report/web")
def test_axe_finds_no_violation_on_any_tab(dovetail, out):
    assert (
        dovetail("compile", DIGITS, "--backend", "cpu-int8", "--data", DATA, "--layers", "-o", "other").returncode == 0
    )
    assert dovetail("report", "other", "out", "-o", "both.html").returncode == 0
    with chromium.Chromium(1400, 900) as page:
        for theme in ("light", "dark"):
            page.theme(theme)
            page.open(out.parent / "both.html")
            page.run(AXE.read_text(encoding="utf-8") + "; 1")
            for tab in ("Summary", "Graph", "Findings", "Nodes", "Borders", "Reasons", "Numbers", "Comparison"):
                page.run(f"dovetailReport.show('{tab}')")
                if tab == "Graph":
                    page.run("dovetailReport.go('n2')")
                found = page.run("axe.run(document).then(all => all.violations.map(one => one.id + one.nodes[0].html))")
                assert found == [], (theme, tab)


@browser
def test_a_model_called_script_runs_no_script(dovetail, tmp_path):
    name = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    model = onnx.load(DIGITS)
    model.graph.name = name
    for node in model.graph.node:
        node.name = f"{name}{node.name}"
    onnx.save(model, "hostile.onnx")
    shutil.copy("hostile.onnx", "<script>.onnx")
    assert dovetail("compile", "<script>.onnx", "--backend", "cpu-bf16", "-o", "out").returncode == 0
    assert dovetail("report", "out").returncode == 0
    with chromium.Chromium() as page:
        page.open(tmp_path / "report.html")
        for tab in ("Graph", "Findings", "Nodes", "Borders", "Reasons", "Numbers"):
            page.run(f"dovetailReport.show('{tab}')")
        page.run("dovetailReport.go('n0')")
        assert page.run("document.title") == "<script>.onnx - Dovetail report"
        assert page.run("document.images.length") == 0
        assert page.messages == []


def test_two_results_side_by_side(dovetail, out):
    assert dovetail("compile", DIGITS, "--backend", "cpu-bf16", "-o", "other").returncode == 0
    assert dovetail("report", "out", "other", "-o", "both.html").returncode == 0
    comparison = data_of(out.parent / "both.html")["comparison"]
    changed = {row["node"]: (row["first"], row["second"]) for row in comparison["changes"]}
    assert changed["conv_2"] == ("host/float32", "cpu-bf16/bfloat16")


@browser
def test_both_results_are_drawn_in_one_layout(dovetail, out):
    assert dovetail("compile", DIGITS, "--backend", "cpu-bf16", "-o", "other").returncode == 0
    assert dovetail("report", "out", "other", "-o", "both.html").returncode == 0
    with chromium.Chromium(1400, 900) as page:
        page.open(out.parent / "both.html")
        page.run("dovetailReport.show('Comparison')")
        shown = "dovetailReport.comparison"
        titles = page.run("[...document.querySelectorAll('#pair .side-title')].map(one => one.innerText)")
        assert [title.partition(":")[0] for title in titles] == ["before", "after"]
        differing = page.run(f"[...{shown}.pair.changed].map(item => {shown}.pair.label(item))")
        assert "conv_2" in differing and "conv_1" not in differing
        alone = [one for one in differing if one.startswith("cast ")]
        assert len(alone) == 2, "the casts around the pinned node"
        page.run("[...document.querySelectorAll('button')].find(one => one.innerText === 'Next difference').click()")
        page.run("new Promise(done => setTimeout(done, 300))")
        page.run(f"{shown}.go({shown}.pair.byName('conv_2'))")
        rows = "[...document.querySelectorAll('#detail tbody tr')]"
        cells = page.run(f"{rows}.map(row => [...row.cells].map(one => one.innerText))")
        assert cells[:2] == [["backend", "host", "cpu-bf16"], ["precision", "float32", "bfloat16"]]
        reasons = page.run("document.getElementById('detail').innerText")
        assert "pin 'conv_2=host'" in reasons.partition("Reasons after")[0] and "computed in bfloat16" in reasons
        drawn = page.run(f"{shown}.view.svg()")
        assert page.messages == []
    texts = [one.text for one in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("conv_2") == 2 and texts.count("f32 \u2192 bf16") == 1 + 2, "one more on the side of the pin"


def test_a_name_of_a_megabyte_is_cut(dovetail, tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) { [n] y = Relu (x) }'
    )
    model.graph.node[0].name = "n" * 1_000_000
    onnx.save(model, "long.onnx")
    assert dovetail("compile", "long.onnx", "--backend", "cpu-bf16", "-o", "out").returncode == 0
    assert dovetail("report", "out").returncode == 0
    assert (tmp_path / "report.html").stat().st_size < 500_000
    assert "(1000000 characters)" in data_of(tmp_path / "report.html")["nodes"]["name"][0]
