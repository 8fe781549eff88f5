"""Requests for mixed plans give every node what the candidate of its segment gives it."""

from collections import namedtuple

import dovetail
import numpy as np
import pytest
from dovetail_tune.candidates import Candidate
from dovetail_tune.mixed_requests import MixedRequests
from onnx import helper, numpy_helper

Part = namedtuple("Part", "nodes")
HOST = Candidate("host @1", ("host",), threads=1)
FLOATS = Candidate("cpu-bf16 @1", ("cpu-bf16",), threads=1)
FLOAT32 = Candidate("cpu-bf16 high @1", ("cpu-bf16",), high=("*",), threads=1)
INTEGERS = Candidate("cpu-int8 @1", ("cpu-int8",), threads=1)
DATA = {"x": np.random.default_rng(0).standard_normal((40, 3, 16, 16)).astype(np.float32)}


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """A net of four convolutions, each with an activation, and what makes requests of it."""
    folder, rng = tmp_path_factory.mktemp("requests"), np.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for at in range(4):
        weight = rng.standard_normal((16, 3 if at == 0 else 16, 3, 3)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(weight, f"w{at}"))
        nodes.append(helper.make_node("Conv", [value, f"w{at}"], [f"c{at}"], f"conv{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("HardSwish", [f"c{at}"], [f"a{at}"], f"swish{at}"))
        value = f"a{at}"
    shapes = [("x", ["N", 3, 16, 16]), (value, ["N", 16, 16, 16])]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for one in (FLOATS, FLOAT32, INTEGERS):
        compiled = dovetail.compile(model, one.backends, high=one.high, data=DATA, verify=False)
        compiled.save(folder / one.name)
    Runner = namedtuple("Runner", "folder_of")
    return MixedRequests(Runner(lambda one: folder / one.name), dovetail.load_plugins()), model, folder


HALVES = [Part(("conv0", "swish0", "conv1", "swish1")), Part(("conv2", "swish2", "conv3", "swish3"))]


def precisions(plan):
    return {node.name: (node.backend, str(node.precision)) for node in plan.nodes}


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("other", [HOST, FLOATS, FLOAT32])
@pytest.mark.parametrize("is_first", [True, False])
def test_integers_are_those_of_the_candidate(requests, other, is_first):
    """Sums of convolutions that an activation reads are not rounded to 8 bits; a pinned node would round them."""
    made, model, folder = requests
    pair = (INTEGERS, other) if is_first else (other, INTEGERS)
    mixed = made.of(HALVES, pair)
    assert mixed.is_mixed and mixed.threads == 1 and mixed.backends[0] == "cpu-int8"
    found = precisions(dovetail.compile(model, mixed.backends, pins=mixed.pins, data=DATA, verify=False).plan)
    wanted = {}
    for part, candidate in zip(HALVES, pair):
        alone = {} if candidate is HOST else precisions(dovetail.load(folder / candidate.name).plan)
        wanted |= {name: alone.get(name, ("host", "float32")) for name in part.nodes}
    assert found == wanted


def test_a_name_says_which_part_is_whose(requests):
    assert requests[0].of(HALVES, (HOST, FLOATS)).name == "mixed ab (a host @1, b cpu-bf16 @1)"


def test_candidates_with_integers_between_their_nodes(requests):
    assert [requests[0].quantizes(one) for one in (HOST, FLOATS, FLOAT32, INTEGERS)] == [False, False, False, True]
