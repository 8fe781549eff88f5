"""Searching in any graph: matches are what brute force over all paths finds, in whatever order the nodes stand."""

import onnx_ir as ir
from dovetail.ir import FlatGraph, Model
from dovetail_placement.edge_kinds import operator_facts
from dovetail_placement.search import DOWN, UP, Pattern, SearchGraph, connected, match, matches_of, paths
from hypothesis import given
from hypothesis import strategies as st

FACTS = operator_facts()
OPERATORS = ("A", "B", "C")


@st.composite
def searches(draw):
    """A graph of nodes that nobody knows, an order of them, and the starts, ends and relaying edges of a search."""
    count = draw(st.integers(1, 8))
    reads = [draw(st.lists(st.integers(-1, index - 1), max_size=3)) for index in range(count)]
    outer, nodes = ir.Value(name="x"), []
    for index, sources in enumerate(reads):
        inputs = [outer if source < 0 else nodes[source].outputs[0] for source in sources]
        kind = draw(st.sampled_from(OPERATORS))
        nodes.append(ir.Node("test", kind, inputs, outputs=[ir.Value(name=f"v{index}")], name=f"n{index}"))
    order = draw(st.permutations(nodes))
    outputs = [node.outputs[0] for node in nodes if draw(st.booleans())]
    model = Model(ir.Model(ir.Graph([outer], outputs, nodes=order, opset_imports={"": 18, "test": 1}), ir_version=10))
    some = st.sets(st.sampled_from(nodes), max_size=count)
    relaying = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))
    named = {(nodes[a], nodes[b]) for a, b in relaying}
    graph = SearchGraph(model, FlatGraph(model), FACTS)
    return graph, nodes, draw(some), draw(some), named, draw(st.sampled_from([DOWN, UP]))


def all_paths(graph, starts, ends, relaying, direction):
    """Every path by the definition; `ends` None: each walk as far as it gets."""

    def going_on(path):
        found, stuck = [], True
        for other in dict.fromkeys(edge.target if direction == DOWN else edge.source for edge in edges[path[-1]]):
            hop = (path[-1], other) if direction == DOWN else (other, path[-1])
            if ends is not None and other in ends:
                found.append((*path, other))
            elif hop in relaying:
                stuck = False
                found += going_on((*path, other))
        return [path] if ends is None and stuck else found

    edges = graph.edges(direction)
    return [path for start in starts for path in going_on((start,))]


@given(searches())
def test_a_match_is_the_union_of_all_paths(search):
    graph, _, starts, ends, relaying, direction = search
    wanted = {"start": starts, "relay": lambda edge: (edge.source, edge.target) in relaying, "direction": direction}
    for stop in (ends, None):
        expected = all_paths(graph, starts, stop, relaying, direction)
        assert match(graph, end=stop, **wanted) == {node for path in expected for node in path}
        found = list(paths(graph, end=stop, **wanted))
        assert len(found) == len(set(found))
        assert set(found) == set(expected)


@given(searches())
def test_edges_that_do_not_exist_for_a_search_are_not_walked_at_all(search):
    graph, _, starts, ends, existing, direction = search

    def exists(edge):
        return (edge.source, edge.target) in existing

    found = match(graph, start=starts, relay=lambda _: True, end=ends, direction=direction, along=exists)
    every = all_paths(graph, starts, ends, existing, direction)
    kept = [path for path in every if all(pair in existing or pair[::-1] in existing for pair in zip(path, path[1:]))]
    assert found == {node for path in kept for node in path}


@given(searches())
def test_connected_nodes_are_a_fixpoint_of_both_directions(search):
    graph, _, starts, _, relaying, _ = search
    pairs = {(edge.source, edge.target) for edges in graph.readers.values() for edge in edges} & relaying
    expected: set = set()
    near = set(starts)
    while near - expected:
        expected |= near
        near = {node for pair in pairs if expected & set(pair) for node in pair}
    assert connected(graph, start=starts, relay=lambda edge: (edge.source, edge.target) in relaying) == expected


TRIANGLE = ((0, 1), (1, 2), (0, 2))


@given(
    searches(),
    st.sampled_from([((0, 1),), ((0, 1), (1, 2)), ((0, 1), (0, 2)), ((0, 2), (1, 2)), TRIANGLE]),
    st.booleans(),
)
def test_patterns_match_wherever_brute_force_finds_them(search, edges, exclusive):
    graph, nodes, *_ = search
    wanted = ("A", "B", lambda node: node.op_type != "B")[: 1 + max(map(max, edges))]
    pattern = Pattern(wanted, edges, exclusive)
    assert sorted(map(names, matches_of(graph, pattern))) == sorted(map(names, assignments(graph, nodes, pattern)))


def names(nodes):
    return [node.name for node in nodes]


def assignments(graph, nodes, pattern):
    from itertools import permutations

    fits = [want if callable(want) else (lambda node, want=want: node.op_type == want) for want in pattern.nodes]
    for chosen in permutations(nodes, len(fits)):
        linked = all(any(edge.target is chosen[b] for edge in graph.readers[chosen[a]]) for a, b in pattern.edges)
        if (
            linked
            and all(fit(node) for fit, node in zip(fits, chosen))
            and (not pattern.exclusive or alone(graph, chosen, pattern))
        ):
            yield chosen


def alone(graph, chosen, pattern):
    entered = [chosen[b] for _, b in pattern.edges]
    left = [chosen[a] for a, _ in pattern.edges]
    return (
        all(edge.source in chosen for node in entered for edge in graph.producers[node])
        and all(edge.target in chosen for node in left for edge in graph.readers[node])
        and not any(value.is_graph_output() for node in left for value in node.outputs)
    )
