"""Deciding ends, whatever backend files and strategies say: every node has a place, or there is one error.

A sample of graphs by default, 2,000 with DOVETAIL_SLOW=1.
"""

import os
import sys
import zlib
from dataclasses import replace

import pytest
from dovetail import api
from dovetail.errors import DovetailError
from dovetail.plugin import Claims, load_plugins
from dovetail_placement.place import Place
from dovetail_placement.strategies.every_node import Autocast
from hypothesis import given, note, settings
from hypothesis import strategies as st

from .models import models

OPERATORS = ["Relu", "Tanh", "Sigmoid", "Neg", "Add", "Sub", "Mul", "MatMul", "Softmax", "Conv", "LayerNormalization",
             "ReduceProd", "Reshape", "Transpose", "Where", "Greater", "Cast", "If", "Loop"]  # fmt: skip
NAMES = ["random-a", "random-b"]
MOST_ROUNDS = 8
GRAPHS = 2000 if os.environ.get("DOVETAIL_SLOW") == "1" else 40
MOVES = "{role: passive, types: q8, same_scale: true}"
QUANTIZED = {
    "Conv": ["{role: active, types: {X: q8, W: w8, B: b32, Y: q8}}",
             "{role: active, types: {X: q8, W: w8, B: b32, Y: [acc, q8]}}",
             "{role: active, types: {X: [q8, f], W: [w8, f], B: [b32, f], Y: [q8, f]}}"],
    "MatMul": ["{role: active, types: {A: q8, B: q8, Y: q8}}", "{role: active, types: {A: q8, B: w8, Y: q8}}"],
    **dict.fromkeys(["Add", "Sub", "Mul"], ["{role: active, types: {A: q8, B: q8, C: q8}}",
                                            "{types: {A: [q8, f], B: [q8, f], C: [q8, f]}}"]),
    **dict.fromkeys(["Relu", "Tanh", "Sigmoid", "Neg", "Reshape", "Transpose"], [MOVES, "{role: passive, types: q8}"]),
}  # fmt: skip
REGIONS = ["", "", "limits: {nodes: 2..}", "limits: {outputs: ..1}", "limits: {inputs: ..2}", "need: [MatMul, Conv]",
           "limits: {nodes: ..5}, need: [Relu]", "limits: {nodes: 2..4, inputs: ..3, outputs: ..2}",
           "limits: {nodes: ..1}"]  # fmt: skip


class RandomFixUp(Autocast):
    """Claims as autocast does, and then withdraws and narrows claims by chance, again and again.

    What it does to a claim depends on how many there are, as if on neighbors; a test sets the chance.
    """

    seed, one_in = 0, 4

    def fix_up(self, view, claims):
        kept = []
        for claim in claims.claims:
            chance = zlib.crc32(f"{self.seed} {claim.node.outputs[0].name} {len(claims.claims)}".encode())
            if chance % self.one_in == 0:
                continue
            if chance % self.one_in == 1:
                claim = replace(claim, ports={port: formats[:1] for port, formats in claim.ports.items()})
            kept.append(claim)
        return Claims(kept)


@st.composite
def backend_files(draw, name):
    """A file that takes some operators, each in some types, integers among them, and says something of regions."""
    types = st.sampled_from(["f", "f", "f", "float16", "float32", "[float32, float16]"])
    low = draw(st.sampled_from(["float16", "int8"]))
    listed = draw(st.lists(st.sampled_from(OPERATORS), min_size=3, unique=True))
    rules = {operator: f"{{types: {draw(types)}}}" for operator in listed}
    for operator in listed if low == "int8" else ():
        rules[operator] = draw(st.sampled_from([rules[operator], *QUANTIZED.get(operator, [])]))
    ops = "\n".join(f"  {operator}: {rule}" for operator, rule in rules.items())
    limits = draw(st.sampled_from(REGIONS))
    strategy = draw(st.sampled_from(["autocast", "autocast", "random-fix-up"]))
    return f"""
backend: {name}
device: npu
opset: 13..26
dynamic: {draw(st.sampled_from(["accept", "refuse"]))}
precision: {{low: {low}, high: float32{", accumulate: int32" if low == "int8" else ""}}}
{"policies: fp16" if low == "float16" else ""}
types:
  f: [float16, float32]
  q8: {{dtype: int8, scheme: symmetric, observer: minmax}}
  w8: {{dtype: int8, scheme: symmetric, granularity: channel, axis: 0}}
  b32: {{dtype: int32, scale: X*W}}
  acc: {{dtype: int32, scale: X*W, when: {{region.last: true}}}}
unlisted: {draw(st.sampled_from(["refuse", "refuse", "{types: f}"]))}
ops:
{ops}
region: {{{limits}}}
place: {{strategy: {strategy}}}
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
    plugins.registry.strategy("random-fix-up", f"{__name__}:RandomFixUp")
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


@settings(max_examples=GRAPHS)
@given(
    proto=models(),
    files=st.tuples(*map(backend_files, NAMES)),
    lists=st.tuples(*[st.lists(st.sampled_from(OPERATORS), max_size=2, unique=True) for _ in ("low", "high")]),
    solver=st.sampled_from(["forward", "fixpoint", "min-cut"]),
    seed=st.integers(0, 999),
)
def test_deciding_ends(package, rounds, proto, files, lists, solver, seed):
    folder, plugins = package
    rounds.clear()
    RandomFixUp.seed = seed
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
