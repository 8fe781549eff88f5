"""What the parser of TensorRT-RTX refused of small graphs, and what the source check and the file of `tensorrt` refuse.

The answers are compared node by node, in the types that the nodes have. A graph that onnx itself refuses is refused
when it is opened or prepared, before any backend is asked.
"""

import json
import zipfile
from pathlib import Path

import dovetail
import onnx
import pytest
import yaml
from dovetail.plugin.loading import load_backend_file
from dovetail_onnx.opening import open_proto
from dovetail_tensorrt.table import refusals_as_typed

RECORDED = Path(__file__).parent / "tensorrt"
GRAPHS = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))["graphs"]
DIFFERENCES = yaml.safe_load((Path(__file__).parent / "tensorrt_differences.yaml").read_text(encoding="utf-8"))
VALID = [name for name, answer in GRAPHS.items() if answer["onnx_accepts"]]
INVALID = [name for name, answer in GRAPHS.items() if not answer["onnx_accepts"]]


@pytest.fixture(scope="module")
def registry():
    return dovetail.load_plugins().registry


def recorded(name):
    with zipfile.ZipFile(RECORDED / "graphs.zip") as archive:
        return onnx.load_from_string(archive.read(f"{name}.onnx"))


def refused(name, registry):
    """The nodes of a graph that the file refuses as they are typed."""
    backend = load_backend_file(registry, registry.backend["tensorrt"], {})
    model = open_proto(onnx.shape_inference.infer_shapes(recorded(name)), name)
    return reached(refusals_as_typed(model, backend, registry), name)


def refused_by_the_parser(name):
    """The nodes that the parser refused; where it refused an initializer, the nodes that read one."""
    graph, names = recorded(name).graph, set(GRAPHS[name]["refused"])
    if "" in names:
        stored = {tensor.name for tensor in graph.initializer}
        names = {node.name for node in graph.node if stored & set(node.input)}
    return reached(names, name)


def reached(names, name):
    """Without each DequantizeLinear behind a QuantizeLinear that is refused: the parser does not look at it.

    The graphs `dq_*` show that it refuses those, too.
    """
    nodes = recorded(name).graph.node
    integers = {node.output[0] for node in nodes if node.op_type == "QuantizeLinear" and node.name in names}
    behind = {node.name for node in nodes if node.op_type == "DequantizeLinear" and node.input[0] in integers}
    return set(names) - behind


@pytest.mark.parametrize("name", VALID)
def test_the_file_refuses_what_the_parser_refuses(name, registry):
    ours = refused(name, registry)
    listed = DIFFERENCES.get(name)
    if listed:
        assert ours == set(listed["refused"]) != refused_by_the_parser(name)
    else:
        assert ours == refused_by_the_parser(name)


@pytest.mark.parametrize("name", INVALID)
def test_what_onnx_refuses_is_refused_as_a_file(name, registry):
    with pytest.raises(dovetail.DovetailError):
        dovetail.compile(recorded(name), backends="tensorrt")


def test_the_parser_agrees_that_these_are_invalid():
    """But for one graph: its scale has another type, which onnx's schema allows and its inference does not."""
    assert [name for name in INVALID if not GRAPHS[name]["refused"]] == ["rmsnorm_f16_f32scale"]


@pytest.mark.parametrize("name", [name for name, answer in GRAPHS.items() if "fixes" in answer])
def test_a_repaired_graph_is_one_engine_as_it_is(name):
    compiled = dovetail.compile(recorded(name), backends="tensorrt")
    assert {placement.backend for placement in compiled.plan.nodes} == {"tensorrt"}


def test_the_differences_are_of_recorded_graphs():
    assert DIFFERENCES.keys() <= set(VALID)
