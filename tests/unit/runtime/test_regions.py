"""Regions are convex, complete, ordered, and not split without need."""

from __future__ import annotations

import os

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import reads_of
from dovetail.planning import Placement, extract, placed_backend, regions_from, set_placement
from dovetail_host.reference import ReferenceEngine
from dovetail_placement.regions.topological import topological_groups
from dovetail_runtime.executor import RegionExecutor
from dovetail_runtime.unpartitioned import ready_regions, slices
from hypothesis import given, settings
from hypothesis import strategies as st

from .models import parse


def form_regions(graph, backend_of=placed_backend):
    """The regions of the partitioner `topological` for all backends."""
    return regions_from(graph, topological_groups(graph, backend_of, reads_of(graph)), backend_of)


@st.composite
def placed_graphs(draw, most_backends=4):
    """A random DAG, and a backend per node."""
    size = draw(st.integers(1, 24))
    names = "abcd"[: draw(st.integers(1, most_backends))]
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    values, nodes = [x], []
    for i in range(size):
        sources = [values[k] for k in draw(st.lists(st.integers(0, i), min_size=1, max_size=3))]
        node = ir.node("Sum", sources, name=f"n{i}")
        node.outputs[0].name = f"v{i}"
        set_placement(node, Placement(backend=draw(st.sampled_from(names))))
        nodes.append(node)
        values.append(node.outputs[0])
    return ir.Graph([x], [values[-1]], nodes=nodes, opset_imports={"": 22}, name="g")


def quotient(regions):
    home = {node: region.index for region in regions for node in region.nodes}
    edges = {region.index: set() for region in regions}
    for node in home:
        for user in node.successors():
            if home[user] != home[node]:
                edges[home[node]].add(home[user])
    return edges


def reaches(edges, start, goal, avoid=()):
    stack, seen = [start], {start}
    while stack:
        for later in edges[stack.pop()] - seen - set(avoid):
            if later == goal:
                return True
            seen.add(later)
            stack.append(later)
    return False


def assert_regions_hold(graph, regions):
    """Each node is in one region of its backend, and the regions can run one after the other."""
    assert sorted(node.name for region in regions for node in region.nodes) == sorted(node.name for node in graph)
    for region in regions:
        assert {node.meta["dovetail.placement"].backend for node in region.nodes} == {region.backend}
    edges = quotient(regions)
    # An order without edges to earlier regions is both an acyclic quotient and convex regions.
    assert all(later > region for region, users in edges.items() for later in users)
    known = set(graph.inputs)
    for region in regions:
        assert known.issuperset(region.inputs)
        known.update(region.outputs)


@settings(max_examples=200 if os.environ.get("DOVETAIL_SLOW") else 50, deadline=None)
@given(placed_graphs())
def test_regions_of_random_graphs_without_a_partitioner(graph):
    assert_regions_hold(graph, ready_regions(graph))


@settings(max_examples=300 if os.environ.get("DOVETAIL_SLOW") else 75, deadline=None)
@given(placed_graphs())
def test_regions_of_random_graphs(graph):
    regions = form_regions(graph)
    assert_regions_hold(graph, regions)
    edges = quotient(regions)
    for i in edges:
        for j in (j for j in edges if j > i and regions[j].backend == regions[i].backend):
            between = [k for k in edges[i] if k != j and reaches(edges, k, j)]
            assert between, f"regions {i} and {j} could be one"


@settings(max_examples=200 if os.environ.get("DOVETAIL_SLOW") else 50, deadline=None)
@given(placed_graphs(most_backends=2))
def test_two_backends_need_no_more_regions_than_the_longest_alternation(graph):
    depth = {}
    for node in graph:
        backend = node.meta["dovetail.placement"].backend
        depth[node] = max(
            (depth[p] + (p.meta["dovetail.placement"].backend != backend) for p in node.predecessors()), default=1
        )
    assert len(form_regions(graph)) - max(depth.values()) in (0, 1)


def test_captured_values_bind_the_order():
    model = parse("""g (bool c, float[2] x) => (float[2] y) {
        a = Neg(x)
        y = If (c) <then_branch = t () => (float[2] p) { p = Neg(a) },
                    else_branch = e () => (float[2] q) { q = Identity(x) }> }""")
    regions = form_regions(model.graph, lambda node: "control" if node.op_type == "If" else "plain")
    assert [region.backend for region in regions] == ["plain", "control"]
    assert {value.name for value in regions[1].inputs} == {"c", "a", "x"}
    part = extract(model, regions[1])
    assert {value.name for value in part.graph.inputs} == {"c", "a", "x"}
    assert sorted(node.op_type for node in part.nodes()) == ["Identity", "If", "Neg"]


@pytest.mark.parametrize(("size", "lengths"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4096, [3])])
def test_slices_run_one_after_another(size, lengths):
    model = parse("""g (float[2] x) => (float[2] y, float[2] b)
        <float[2] w = {1, 2}> { a = Add(x, w) b = Mul(a, w) y = Mul(a, b) }""")
    regions = slices(model.graph, size)
    assert [len(region.nodes) for region in regions] == lengths
    executor = RegionExecutor(model, {"host": [ReferenceEngine()]}, regions=regions)
    results = executor.run({"x": np.array([3, 4], np.float32)})
    assert {name: list(value) for name, value in results.items()} == {"b": [4, 12], "y": [16, 72]}


def test_a_graph_without_types_is_one_slice():
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) }")
    model.graph[0].outputs[0].type = None
    assert [len(region.nodes) for region in slices(model.graph, 1)] == [2]


def test_extraction_shares_weights_and_leaves_the_model_alone():
    model = parse("""g (float[2] x) => (float[2] y)
        <float[2] w = {1, 2}, float[2] v = {3, 4}> { a = Add(x, w) y = Mul(a, v) }""")
    first, second = form_regions(model.graph, lambda node: node.op_type)
    part = extract(model, second)
    assert list(part.graph.initializers) == ["v"]
    assert part.graph.initializers["v"].const_value is model.graph.initializers["v"].const_value
    assert [node.name for node in part.graph] == ["mul_1"]
    assert [node.name for node in model.graph] == ["add_0", "mul_1"]
    assert part.graph.inputs[0].dtype == ir.DataType.FLOAT
    assert [value.name for value in first.outputs] == ["a"]


def test_an_untyped_border_is_an_error_that_names_the_value():
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) }")
    model.graph[0].outputs[0].type = None
    with pytest.raises(DovetailError, match="value 'a' enters region 1"):
        extract(model, form_regions(model.graph, lambda node: node.op_type)[1])


def test_nodes_out_of_order_are_no_cycle():
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Neg(b) }")
    first = model.graph[0]
    model.graph.remove(first)
    model.graph.append(first)
    regions = ready_regions(model.graph, lambda node: node.op_type)
    assert [[node.outputs[0].name for node in region.nodes] for region in regions] == [["a"], ["b"], ["y"]]


def test_a_cycle_is_an_error():
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) }")
    model.graph[0].replace_input_with(0, model.graph[1].outputs[0])
    with pytest.raises(DovetailError, match="cycle"):
        form_regions(model.graph)
    with pytest.raises(DovetailError, match="cycle"):
        ready_regions(model.graph)
