"""Deciding ends, whatever a backend file says: every node has a place, or there is one error."""

import sys

import pytest
from dovetail import api
from dovetail.errors import DovetailError
from dovetail.plugin.loader import load_plugins
from dovetail_placement.place import Place
from hypothesis import given, note
from hypothesis import strategies as st

from .models import models

OPERATORS = ["Relu", "Tanh", "Sigmoid", "Neg", "Add", "Sub", "Mul", "MatMul", "Softmax", "Conv", "LayerNormalization",
             "ReduceProd", "Reshape", "Transpose", "Where", "Greater", "Cast", "If", "Loop"]  # fmt: skip
NAMES = ["random-a", "random-b"]
MOST_ROUNDS = 8


@st.composite
def backend_files(draw, name):
    """A file that takes some operators, each in some types, and says something of regions."""
    types = st.sampled_from(["f", "f", "f", "float16", "float32", "[float32, float16]"])
    listed = draw(st.lists(st.sampled_from(OPERATORS), min_size=3, unique=True))
    ops = "\n".join(f"  {operator}: {{types: {draw(types)}}}" for operator in listed)
    limits = draw(st.sampled_from(["", "", "limits: {nodes: 2..}", "limits: {outputs: ..1}", "limits: {inputs: ..2}",
                                   "need: [MatMul, Conv]", "limits: {nodes: ..5}, need: [Relu]"]))  # fmt: skip
    least = draw(st.sampled_from(["", ", min_region: 2", ", min_region: 4"]))
    return f"""
backend: {name}
device: npu
opset: 13..26
dynamic: {draw(st.sampled_from(["accept", "refuse"]))}
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
unlisted: {draw(st.sampled_from(["refuse", "refuse", "{types: f}"]))}
ops:
{ops}
region: {{{limits}}}
place: {{strategy: autocast{least}}}
emit: {{engines: [onnxruntime-cpu]}}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of the files, and plugins that read them anew each time."""
    root = tmp_path_factory.mktemp("random_backends")
    folder = root / "dovetail_random_backends"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    sys.path.insert(0, str(root))
    plugins = load_plugins()
    for name in NAMES:
        plugins.registry.backend(name, f"dovetail_random_backends:{name}.yaml")
    yield folder, plugins
    sys.path.remove(str(root))


@pytest.fixture(scope="module")
def rounds():
    """How often nodes were placed; a test empties it."""
    calls, run = [], Place.run

    def counted(self, model, ctx):
        calls.append(self)
        assert len(calls) <= MOST_ROUNDS, "deciding goes on and on"
        return run(self, model, ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Place, "run", counted)
        yield calls


@given(
    proto=models(),
    files=st.tuples(*map(backend_files, NAMES)),
    lists=st.tuples(*[st.lists(st.sampled_from(OPERATORS), max_size=2, unique=True) for _ in ("low", "high")]),
    solver=st.sampled_from(["forward", "fixpoint", "min-cut"]),
)
def test_deciding_ends(package, rounds, proto, files, lists, solver):
    folder, plugins = package
    rounds.clear()
    for name, text in zip(NAMES, files, strict=True):
        note(text)
        (folder / f"{name}.yaml").write_text(text)
    there = {node.op_type for node in api.open(proto).nodes()}
    low, high = ([f"type:{operator}" for operator in listed if operator in there] for listed in lists)
    try:
        plan = api.plan(proto, NAMES, low=low, high=high, solver=solver, plugins=plugins)
    except DovetailError as error:
        # Lists that contradict each other, or name operators that were folded or removed.
        assert "cannot be both" in str(error) or "no node matches" in str(error), error
        return
    assert plan.nodes
    assert {node.backend for node in plan.nodes} <= {*NAMES, "host"}
    where = {node.output: node.backend for node in plan.nodes}
    for output, backend in where.items():
        holder = output.partition("/")[0]
        if holder != output:  # it stands in a body
            assert {backend} == {node.backend for node in plan.nodes if node.name == holder}
