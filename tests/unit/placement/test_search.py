"""What searches walk on, and where they stop."""

from itertools import islice

import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text
from dovetail_placement.search import UP, Pattern, SearchGraph, connected, match, matches_of, paths

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'
CHAIN = """g (float[1,4] x) => (float[1,4] y) {
    a = Relu (x)  b = Sigmoid (a)  c = Neg (b)  y = Relu (c) }"""


def graph_of(text):
    plugins = load_plugins()
    model = open_text(HEAD + text, "test")
    context = Context(plugins=plugins)
    Pipeline.parse("normalize", plugins.registry).run(model, context)
    return context.analysis(SearchGraph, model)


def outputs(nodes):
    return {node.outputs[0].name for node in nodes}


def named(*names):
    return lambda node: node.outputs[0].name in names


def anything(edge):
    return True


def nothing(edge):
    return False


def test_the_last_hop_need_not_relay():
    graph = graph_of(CHAIN)
    assert outputs(match(graph, start=named("a"), relay=nothing, end=named("b"))) == {"a", "b"}


def test_a_walk_stops_at_its_first_end():
    graph = graph_of(CHAIN)
    assert outputs(match(graph, start=named("a"), relay=anything, end=named("b", "y"))) == {"a", "b"}


def test_a_start_that_reaches_no_end_is_not_matched():
    graph = graph_of(CHAIN)
    relay = lambda edge: edge.target.op_type != "Neg"  # noqa: E731
    assert match(graph, start=named("a"), relay=relay, end=named("y")) == set()
    assert outputs(match(graph, start=named("a"), relay=relay, end=None)) == {"a", "b"}


def test_a_search_upwards():
    graph = graph_of(CHAIN)
    found = match(graph, start=named("c"), relay=anything, end=lambda node: node.op_type == "Relu", direction=UP)
    assert outputs(found) == {"a", "b", "c"}


def test_an_edge_says_whether_it_carries_numbers():
    graph = graph_of(
        """g (float[2,8] x, float low) => (float[4,4] y, int64[2,2] i) {
             a = Relu (x)  s = Shape (a)  z = Identity (s)  r = Reshape (a, z)  l = Neg (low)  c = Clip (r, l)
             k = Constant <value_ints = [2]> ()  v, i = TopK (c, k)  f = Cast <to = 1> (i)  y = Mul (v, f) }"""
    )
    edges = {
        (edge.value.name, edge.target.outputs[0].name): edge for node in graph.nodes for edge in graph.readers[node]
    }
    carrying = {pair for pair, edge in edges.items() if edge.carries}
    assert carrying == {("a", "r"), ("r", "c"), ("c", "v"), ("v", "y"), ("f", "y")}
    assert edges["z", "r"].kind == "shape"
    assert edges["l", "c"].kind == "data"  # a bound is data, and only controls the result
    assert edges["i", "f"].output == 1
    assert graph.producers[edges["z", "r"].target][0] is edges["a", "r"]


def test_constants_have_no_edges():
    graph = graph_of("g (float[2] x) => (float[2] y) { k = Constant <value_floats = [1.0, 2.0]> ()  y = Add (x, k) }")
    assert all(not edges for edges in (*graph.readers.values(), *graph.producers.values()))


def test_a_use_in_a_body_is_an_edge_to_the_control_flow_node():
    graph = graph_of(
        """g (float[4] x, bool c) => (float[4] y) { a = Relu (x)  b = Neg (x)  y = If (c) <
             then_branch = t () => (float[4] p) { p = Sigmoid (a) },
             else_branch = e () => (float[4] q) { q = Identity (b) }> }"""
    )
    found = match(graph, start=named("a", "b"), relay=nothing, end=lambda node: node.op_type == "If")
    assert outputs(found) == {"a", "b", "y"}


@pytest.mark.slow
def test_a_long_chain_is_no_deeper_than_a_short_one():
    steps = "".join(f"v{index + 1} = Relu (v{index}) " for index in range(5000))
    graph = graph_of(f"g (float[1] v0) => (float[1] y) {{ {steps} y = Neg (v5000) }}")
    assert len(match(graph, start=named("v1"), relay=anything, end=named("y"))) == 5001
    (path,) = paths(graph, start=named("v1"), relay=anything, end=named("y"))
    assert len(path) == 5001


def test_paths_come_one_by_one():
    diamonds = "".join(
        f"l{index} = Relu (v{index}) r{index} = Neg (v{index}) v{index + 1} = Add (l{index}, r{index}) "
        for index in range(60)
    )
    graph = graph_of(f"g (float[1] x) => (float[1] y) {{ v0 = Sigmoid (x) {diamonds} y = Exp (v60) }}")
    some = list(islice(paths(graph, start=named("v0"), relay=anything, end=named("y")), 100))  # of 2^60
    assert len(set(some)) == 100


def test_what_edges_connect_in_any_direction():
    graph = graph_of(
        "g (float[1] x) => (float[1] y, float[1] z) { a = Relu (x)  y = Neg (a)  z = Exp (a)  b = Neg (x) }"
    )
    assert outputs(connected(graph, start=named("y"), relay=anything)) == {"a", "y", "z"}


NETS = """g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] y, float[1,2,4,4] z) {
    a = Conv (x, w)  b = Relu (a)  c = Conv (b, w)  d = Relu (c)  y = Add (d, c)  e = Conv (x, w)  z = Relu (e) }"""


def test_an_exclusive_pattern_is_left_only_at_its_end():
    product = Pattern(("Conv", "Relu"), ((0, 1),))
    assert [outputs(found) for found in matches_of(graph_of(NETS), product)] == [{"a", "b"}, {"e", "z"}]


def test_a_pattern_that_others_may_read():
    product = Pattern(("Conv", "Relu"), ((0, 1),), exclusive=False)
    assert [outputs(found) for found in matches_of(graph_of(NETS), product)] == [{"a", "b"}, {"c", "d"}, {"e", "z"}]


def test_a_pattern_of_one_node():
    assert len(list(matches_of(graph_of(NETS), Pattern((lambda node: node.op_type == "Conv",))))) == 3


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (("Conv", "Relu"), (), "must be connected"),
        (("Conv", "Relu"), ((0, 1), (1, 0)), "must have no cycle"),
        (("Conv",), ((0, 1),), "names another one"),
        ((), (), "must be connected"),
    ],
)
def test_what_is_no_pattern(nodes, edges, message):
    with pytest.raises(DovetailError, match=message):
        Pattern(nodes, edges)
