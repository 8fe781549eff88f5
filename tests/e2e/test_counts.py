"""Every face counts the nodes of the plan: table, last line, plan, explanation, JSON, report, a loaded result."""

import json
import re
from pathlib import Path

import dovetail
import onnx
import pytest
from dovetail_report.collect.document import document

from . import nets

DIGITS = "examples/digits/digits.onnx"
GRAPHS = Path(__file__).parent / "random_graphs"
BACKENDS = ("cpu-bf16", "gpu-fp16", "cpu-int8", "bpu-int8", "ppl-int8")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each net, and its samples."""
    folder = tmp_path_factory.mktemp("nets")
    found = {"digits": (DIGITS, "examples/digits/test.npz")}
    for name in nets.NETS:
        onnx.save(nets.net(name), folder / f"{name}.onnx")
        found[name] = (folder / f"{name}.onnx", nets.images(2))
    return found


@pytest.fixture(scope="module")
def compiled(files):
    """Compile a net for a backend beside cpu-bf16, once."""
    known = {}

    def get(name, backend):
        if (name, backend) not in known:
            model, data = files[name]
            shapes = {"fix_shapes": {"image": (1, 1, 8, 8)}} if name == "digits" else {}
            backends = list(dict.fromkeys((backend, "cpu-bf16")))
            known[name, backend] = dovetail.compile(model, backends, data=data, try_engines=False, **shapes)
        return known[name, backend]

    return get


def numbers(line):
    """The nodes of each backend in a coverage line: `cpu-bf16 12/13 nodes in 1 region, host 1; 2 conversions`."""
    counted = re.findall(r"(?:^|, )([\w-]+) (\d+)", re.sub(r" \([^)]*\)", "", line.split(";")[0]))
    return {backend: int(number) for backend, number in counted}


@pytest.mark.generated(one_of=5)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ("digits", *nets.NETS))
def test_all_faces_count_alike(compiled, name, backend, tmp_path):
    check_counts(compiled(name, backend), tmp_path)


@pytest.mark.generated
@pytest.mark.parametrize("backend", ("cpu-bf16", "cpu-int8", "gpu-fp16"))
@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.onnx")), ids=lambda path: path.stem)
def test_all_faces_count_graphs_of_many_operators_alike(path, backend, tmp_path):
    check_counts(dovetail.compile(path, backend, data=path.with_suffix(".npz"), try_engines=False), tmp_path)


def check_counts(compiled, tmp_path):
    """Compare the counts in every face of a result."""
    plan = compiled.plan
    expected = {one: sum(node.backend == one for node in plan.nodes) for one in {node.backend for node in plan.nodes}}
    found = document(compiled)
    table = compiled.placement_table()
    faces = {
        "table": {one: sum(row["nodes"] for row in table if row["backend"] == one) for one in expected},
        "last line": numbers(compiled.coverage()),
        "plan": dict(plan.summary["coverage"]),
        "explanation": numbers(dovetail.explain(compiled)[0]),
        "report": {row["backend"]: row["nodes"] for row in found["backends"]},
    }
    compiled.save(tmp_path / "out")
    loaded = dovetail.load(tmp_path / "out")
    faces["loaded"] = numbers(loaded.coverage())
    saved = json.loads((tmp_path / "out" / "result.json").read_text())
    faces["JSON"] = numbers(saved["summary"])
    assert {face: {k: v for k, v in counted.items() if v} for face, counted in faces.items()} == dict.fromkeys(
        faces, expected
    )
    regions = {"plan": plan.summary["regions"], "report": sum(row["regions"] for row in found["backends"])}
    assert set(regions.values()) == {len({node.region for node in plan.nodes} - {None})}
    counts = found["counts"]
    assert counts["nodes"] == len(plan.nodes) and counts["conversions"] == len(plan.joins) == len(found["conversions"])
    again = document(loaded)
    assert again["counts"] == counts and again["edges"] == found["edges"]


@pytest.mark.generated(one_of=5)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ("digits", *nets.NETS))
def test_every_node_of_the_file_has_its_place_in_the_drawing(compiled, name, backend):
    compiled = compiled(name, backend)
    found = document(compiled)
    held = sum(1 for node in compiled.model.nodes())
    assert found["counts"]["nodes"] + found["counts"]["expanded"] >= held - len(compiled.model.ir.functions)
    items = len(found["nodes"]["name"]) + len(found["inputs"]) + len(found["outputs"])
    entered = {end for end in found["edges"][1::3] if end >= items}
    assert len(entered) == len(found["conversions"]), "every conversion has a place between two nodes"
