"""Partitioners cut the nodes of a backend into regions; what they return is checked, and the executor runs it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Pass
from dovetail.planning import Placement, get_placement, placed_backend, set_placement
from dovetail.plugin import Partitioner, Registry
from dovetail_host.reference import ReferenceEngine
from dovetail_placement.regions.partitioners import formed_regions
from dovetail_placement.regions.topological import numbered_or_formed
from dovetail_runtime.executor import RegionExecutor
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import PARTITIONERS


@pytest.fixture
def registry():
    made = Registry("acme")
    for name in PARTITIONERS:
        made.partitioner(name, f"{PARTITIONERS[name].__module__}:{PARTITIONERS[name].__name__}")
    made.partitioner("topological", "dovetail_placement.regions.topological:Topological")
    return made


def chain(*backends, reads=()):
    """A graph n0, n1, ...: each node reads the one before, or what `reads` says, and has the backend given."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    values, nodes = [x], []
    for i, backend in enumerate(backends):
        sources = dict(reads).get(i, (i - 1,))
        node = ir.node("Sum", [values[source + 1] for source in sources], name=f"n{i}")
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"v{i}", x.type, x.shape
        set_placement(node, Placement(backend))
        nodes.append(node)
        values.append(node.outputs[0])
    return ir.Graph([x], [values[-1]], nodes=nodes, opset_imports={"": 17}, name="g")


def names(regions):
    return [[node.name for node in region.nodes] for region in regions]


def test_a_former_cuts_the_nodes_of_its_backend_alone(registry):
    graph = chain("a", "a", "b", "b", "a")
    regions = formed_regions(graph, {"a": "one-by-one", "b": "topological"}, registry, placed_backend)
    assert names(regions) == [["n0"], ["n1"], ["n2", "n3"], ["n4"]]
    assert [region.index for region in regions] == [0, 1, 2, 3]
    assert [value.name for value in regions[2].inputs] == ["v1"]


def test_waves_go_around_what_another_former_made(registry):
    # b0 could join b3 in one wave, if the region of a did not stand between them.
    graph = chain("b", "a", "a", "b", reads={1: (0,), 2: (-1,), 3: (1, 2)})
    regions = formed_regions(graph, {"a": "all-in-one", "b": "topological"}, registry, placed_backend)
    assert names(regions) == [["n0"], ["n1", "n2"], ["n3"]]


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        ("loses", "partitioner 'loses' of acme puts 'n1' into no region"),
        ("doubles", "partitioner 'doubles' of acme puts 'n0' into two regions"),
        ("empty", "partitioner 'empty' of acme returns an empty region"),
        ("foreign", "partitioner 'foreign' of acme takes 'n2' of b"),
        ("junk", "partitioner 'junk' of acme puts something into a region that is no node of the graph"),
        ("crash", "partitioner 'crash' of acme failed: ZeroDivisionError: division by zero"),
        ("leaves", "partitioner 'leaves' of acme failed: SystemExit: 3"),
        (
            "all-in-one",
            "partitioner 'all-in-one' of acme forms regions that cannot run one after the other: "
            "the region from 'n0' to 'n3', which waits for 'n2', which waits for the region from 'n0' to 'n3'",
        ),
        ("al-in-one", "unknown partitioner 'al-in-one' (did you mean 'all-in-one'?)"),
    ],
)
def test_a_former_that_breaks_its_contract_is_named(registry, partitioner, message):
    graph = chain("a", "a", "b", "a")
    with pytest.raises(DovetailError) as caught:
        formed_regions(graph, {"a": partitioner, "b": "topological"}, registry, placed_backend)
    assert message in str(caught.value)


def test_two_formers_whose_regions_wait_for_each_other(registry):
    # a0 -> b1 and b2 -> a3: each partitioner is right by itself, and both together are not.
    graph = chain("a", "b", "b", "a", reads={1: (0,), 2: (-1,), 3: (2,)})
    with pytest.raises(DovetailError, match="partitioner 'by-backend' of acme forms regions that cannot run"):
        formed_regions(graph, {"a": "all-in-one", "b": "by-backend"}, registry, placed_backend)


@st.composite
def placed_graphs(draw):
    size = draw(st.integers(1, 20))
    backends = draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size))
    reads = {i: tuple(draw(st.lists(st.integers(-1, i - 1), min_size=1, max_size=3))) for i in range(size)}
    return chain(*backends, reads=reads)


@settings(max_examples=150 if os.environ.get("DOVETAIL_SLOW") else 37, deadline=None)
@given(placed_graphs())
def test_the_regions_of_a_random_graph_compute_what_the_whole_graph_computes(graph):
    registry = Registry("acme")
    registry.partitioner("one-by-one", f"{PARTITIONERS['one-by-one'].__module__}:{PARTITIONERS['one-by-one'].__name__}")
    registry.partitioner("topological", "dovetail_placement.regions.topological:Topological")
    regions = formed_regions(
        graph, {"a": "one-by-one", "b": "topological", "c": "topological"}, registry, placed_backend
    )
    assert sorted(node.name for region in regions for node in region.nodes) == sorted(node.name for node in graph)
    for region in regions:
        for node in region.nodes:
            set_placement(node, replace(get_placement(node), region=region.index))
    assert names(numbered_or_formed(graph)) == names(regions)
    model = dovetail.open(ir.Model(graph, ir_version=8))
    engines = {name: [ReferenceEngine()] for name in "abc"}
    feeds = {"x": np.array([1, -2], np.float32)}
    whole = RegionExecutor(model, engines, backend_of=lambda _: "a").run(feeds)
    (name,) = whole
    np.testing.assert_array_equal(whole[name], RegionExecutor(model, engines, regions=regions).run(feeds)[name])


def test_the_default_partitioner_forms_as_few_regions_as_possible(registry):
    graph = chain(*"abab", reads={2: (0,), 3: (1, 2)})
    regions = formed_regions(graph, dict.fromkeys("ab", "topological"), registry, placed_backend)
    assert names(regions) == [["n0", "n2"], ["n1", "n3"]]


def test_numbers_that_an_edit_made_wrong_are_formed_anew():
    graph = chain("a", "b", "a")
    for node, region in zip(graph, (1, 0, 2)):
        set_placement(node, replace(get_placement(node), region=region))
    assert names(numbered_or_formed(graph)) == [["n0"], ["n1"], ["n2"]]


def test_the_former_that_a_backend_file_names_decides_what_the_executor_runs(with_backend, digits_and_image):
    path, image = digits_and_image
    file = """
backend: acme
device: npu
opset: 13..22
precision: {low: float32, high: float32}
ops:
  Conv, Relu, MaxPool: {policy: pass}
unlisted: refuse
place: {strategy: autocast, regions: one-by-one}
emit: {engines: [onnxruntime-cpu]}
"""
    plugins = with_backend(file)
    plugins.registry.partitioner("one-by-one", f"{PARTITIONERS['one-by-one'].__module__}:OneByOne")
    compiled = dovetail.compile(path, "acme", plugins=plugins)
    single = [region for region in compiled.regions if region.backend == "acme"]
    assert len(single) > 3
    assert all(len(region.nodes) == 1 for region in single)
    plain = dovetail.compile(path, "host")
    (name,) = plain.run(image)
    np.testing.assert_allclose(plain.run(image)[name], compiled.run(image)[name], rtol=1e-4, atol=1e-5)


SEEN = {}


class Noting(Partitioner):
    """A partitioner that notes what it sees beside the graph."""

    place_keys = ("tile",)

    def form(self, view):
        npu = view.chosen["acme-npu"]
        SEEN.update(options=dict(npu.chosen), place=dict(npu.place), pins=view.request.pins)
        return [[node] for node in view.nodes]


def test_a_former_sees_the_request_and_what_the_file_of_its_backend_says(with_backend):
    plugins = with_backend(
        dedent("""\
        backend: acme-npu
        device: npu
        opset: 13..22
        precision: {low: float16, high: float32}
        options: {size: ["1", "2"]}
        types: {f: [float16, float32]}
        ops: {Conv: {types: f}}
        place: {strategy: engine-regions, regions: noting, launch: 64, tile: [8, 8]}
        emit: {engines: [onnxruntime-cpu]}
    """)
    )
    plugins.registry.partitioner("noting", f"{__name__}:Noting")
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    dovetail.plan(digits, "acme-npu:size=2", pins=["conv_2=acme-npu"], plugins=plugins)
    assert (SEEN["options"], SEEN["pins"]) == ({"size": "2"}, ("conv_2=acme-npu",))
    assert SEEN["place"] == {"launch": 64, "tile": [8, 8]}


def test_a_key_that_neither_strategy_nor_partitioner_reads_is_an_error_with_its_line(with_backend, float_backend):
    plugins = with_backend(float_backend("acme-npu", "Conv", options=", regions: noting, tiles: 8"))
    plugins.registry.partitioner("noting", f"{__name__}:Noting")
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    with pytest.raises(DovetailError) as caught:
        dovetail.plan(digits, "acme-npu", plugins=plugins)
    assert caught.value.message == (
        "inline.yaml:10: strategy 'autocast' does not read 'tiles' under place (did you mean 'tile'?)"
    )
    assert caught.value.hint == "it reads no key of its own; partitioner 'noting' reads tile"


class Underived:
    def form(self, view):
        return [[node] for node in view.nodes]


def test_a_partitioner_that_derives_from_nothing_is_told_what_to_derive_from(registry):
    registry.partitioner("underived", f"{__name__}:Underived")
    with pytest.raises(DovetailError) as caught:
        formed_regions(chain("a", "b"), {"a": "underived", "b": "topological"}, registry, placed_backend)
    assert caught.value.message == "partitioner 'underived' of acme is no Partitioner"
    assert "dovetail.plugin.Partitioner" in caught.value.hint


@dataclass(frozen=True)
class Doubled(Pass):
    """Adds two nodes behind every Relu, without placements, after `join`."""

    name = "doubled"
    stage = "join"
    requires = ("join",)

    def run(self, model, ctx):
        for relu in [node for node in model.graph if node.op_type == "Relu"]:
            value, made = relu.outputs[0], []
            for number in (1, 2):
                new = ir.node("Neg", [made[-1].outputs[0] if made else value], name=f"{relu.name}_neg_{number}")
                new.outputs[0].name = f"{value.name}_neg_{number}"
                new.outputs[0].type, new.outputs[0].shape = value.type, value.shape
                made.append(new)
            value.replace_all_uses_with(made[-1].outputs[0])
            made[0].replace_input_with(0, value)
            model.graph.insert_after(relu, made)
        model.touch()
        return True


def test_nodes_that_a_pass_adds_behind_join_are_placed(with_backend):
    """With their neighbors where the backend takes them, here Neg in float32 alone, else on the host."""
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    compiled = dovetail.compile(digits, "cpu-bf16", passes=[Doubled()])
    assert compiled.coverage().startswith("cpu-bf16 13/13 nodes in 1 region")
    assert [r.node for r in compiled.remarks if r.rule == "placed-later"][:2] == ["relu_1_neg_1", "relu_1_neg_2"]
    plugins = with_backend(
        dedent("""\
        backend: acme-npu
        device: npu
        opset: 13..22
        precision: {low: float16, high: float32}
        policies: fp16
        types: {f: [float16, float32]}
        ops: {"Conv, Relu, MaxPool, Flatten, Gemm, Softmax": {types: f}}
        place: {strategy: autocast}
        emit: {engines: [onnxruntime-cpu]}
    """)
    )
    elsewhere = dovetail.compile(digits, "acme-npu", passes=[Doubled()], plugins=plugins)
    assert {get_placement(node).backend for node in elsewhere.model.graph if node.op_type == "Neg"} == {"host"}
