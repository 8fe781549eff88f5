"""Results in notebooks and at the prompt: tables in HTML, one line that is worth reading, and data frames."""

import dovetail
import numpy as np
import onnx.parser
import pytest

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {WEIGHTS}> {
  [conv] a = Conv (x, w)
  ["<b>soft</b>"] b = Softmax <axis = 1> (a)
  [tail] y = Relu (b)
}""".replace("WEIGHTS", ",".join(f"{0.13 * i - 1:.2f}" for i in range(16)))


@pytest.fixture(scope="module")
def compiled():
    model = onnx.parser.parse_model(MODEL.replace('["<b>soft</b>"]', "[soft]"))
    model.graph.node[1].name = "<b>soft</b>"
    return dovetail.compile(model, "cpu-bf16", pins=["type:Softmax=host"], verify=True)


def test_a_result_and_its_plan_are_tables_with_the_coverage(compiled):
    for shown in (compiled._repr_html_(), compiled.plan._repr_html_()):
        assert shown.startswith("<table>") and "cpu-bf16 2/3 nodes in 2 regions" in shown
    assert "&lt;b&gt;soft&lt;/b&gt;" in compiled.plan._repr_html_() and "<b>soft" not in compiled.plan._repr_html_()
    assert repr(compiled.plan) == "<Plan of a model: cpu-bf16 2/3 nodes in 2 regions, host 1; 2 conversions>"
    assert repr(compiled).startswith("<CompiledModel g: cpu-bf16 2/3 nodes in 2 regions, host 1; 2 conversions; SNR ")


def test_a_plan_is_a_data_frame_where_pandas_is_installed(compiled, monkeypatch):
    rows = compiled.plan.rows()
    assert [row["backend"] for row in rows] == ["cpu-bf16", "host", "cpu-bf16"]
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(dovetail.DovetailError, match="pandas"):
            compiled.plan.to_dataframe()
    else:
        frame = compiled.plan.to_dataframe()
        assert list(frame.columns) == ["name", "operator", "backend", "precision", "region", "why"] and len(frame) == 3


def has_convolution(model, _):
    return any(node.op_type == "Conv" for node in model.graph)


def test_rankings_reductions_and_tunings_say_what_they_found():
    data = {"x": np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype("float32")}
    model = onnx.parser.parse_model(MODEL.replace('["<b>soft</b>"]', "[soft]"))
    ranking = dovetail.bisect(model, "cpu-bf16", data=data)
    assert repr(ranking).startswith("<Ranking of ") and ranking._repr_html_().startswith("<table>")
    reduction = dovetail.reduce(model, check=has_convolution)
    assert repr(reduction).startswith("<Reduction: 3 nodes reduced to ") and "Conv" in reduction._repr_html_()


@pytest.mark.slow
def test_a_notebook_shows_progress_and_the_table_of_a_result():
    """Executed in a real kernel."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [
        'import dovetail\nmodel = "examples/digits/digits.onnx"',
        "with dovetail.progress() as bar:\n"
        '    compiled = dovetail.compile(model, "cpu-int8", data="examples/digits/test.npz", progress=bar)\ncompiled',
        "from dovetail_commands.progress import NotebookBar\nassert isinstance(bar._bar, NotebookBar)\n"
        "bar = NotebookBar()\nbar.show('a <step>', 3, 7)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    compiled, drawn = (cell.outputs for cell in notebook.cells[1:])
    assert "<table>" in compiled[-1].data["text/html"] and "Conv" in compiled[-1].data["text/html"]
    assert '<progress value="3" max="7"' in drawn[-1].data["text/html"]
    assert "a &lt;step&gt; 3/7" in drawn[-1].data["text/html"]
