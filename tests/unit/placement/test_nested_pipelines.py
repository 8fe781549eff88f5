"""`backend:acme(...)`: passes that run over every region of a backend by itself."""

import io
import os
from dataclasses import dataclass
from typing import ClassVar

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FLOAT32, all_nodes, verify_model
from dovetail.passes import Context, Instrumentation, Nested, Pass, Pipeline, Request
from dovetail.planning import Placement, get_placement, set_placement
from dovetail_commands.instrumentation import timing_lines
from dovetail_host.reference import ReferenceEngine
from dovetail_onnx.opening import open_proto
from dovetail_runtime.executor import RegionExecutor
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, bool c) => (float[2] y, float[2] z)
<float[2] w = {1, 2}, float[2] half = {0.5, 0.5}> {
  a = Relu (x)
  b = Mul (a, w)
  d = Tanh (b)
  e = Mul (d, w)
  y = If (c) <then_branch = t () => (float[2] p) { p = Relu (e) },
              else_branch = f () => (float[2] q) { q = Mul (e, half) }>
  z = Relu (e)
}
"""
ENGINES = {"acme": [ReferenceEngine()], "host": [ReferenceEngine()]}
FEEDS = {"x": np.array([-1.5, 2.5], np.float32), "c": np.array(True)}


def placed(host=("d",), text=TEXT):
    """The model with the nodes that compute `host` on the host and everything else on acme."""
    model = open_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    for node in all_nodes(model.graph):
        node.name = f"node_{node.outputs[0].name}"
        set_placement(node, Placement("host" if node.outputs[0].name in host else "acme", FLOAT32))
    return model


def run(pipeline, model, *backends, **instrumentation):
    watch = Instrumentation(**instrumentation)
    return pipeline.run(model, Context(Request.of(*(backends or ["acme"])), plugins=dovetail.load_plugins()), watch)


def outputs(model):
    return RegionExecutor(model, ENGINES).run(FEEDS)


def name_of(node):
    return node.outputs[0].name


@dataclass(frozen=True)
class ReluToMax(Pass):
    """Replace Relu by Max with a weight; the nodes of bodies stay."""

    name: ClassVar[str] = "relu-to-max"
    seen: ClassVar[list] = []

    def run(self, model, ctx):
        self.seen.append(sorted(node.name for node in model.nodes()))
        changed = False
        for node in list(model.graph):
            if node.op_type == "Relu":
                zero = ir.Value(name="w", const_value=ir.tensor(np.zeros(2, np.float32), name="w"))
                zero.name = "zero"
                zero.type, zero.shape = node.outputs[0].type, node.outputs[0].shape
                model.graph.initializers.add(zero) if "zero" not in model.graph.initializers else None
                new = ir.node("Max", [node.inputs[0], model.graph.initializers["zero"]], name="node_d")
                new.name = new.name if all(other.name != new.name for other in model.graph) else f"max_{name_of(node)}"
                new.outputs[0].type, new.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
                model.graph.insert_before(node, new)
                name, node.outputs[0].name = node.outputs[0].name, None
                node.outputs[0].replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
                new.outputs[0].name = name
                model.graph.remove(node, safe=True)
                ctx.remark("passed", new, "max", "Relu is Max with zero")
                model.touch()
                changed = True
        return changed


@dataclass(frozen=True)
class Doing(Pass):
    """Do what a test wants to a model."""

    name: ClassVar[str] = "doing"
    what: object = None

    def __str__(self):
        return self.name

    def run(self, model, ctx):
        self.what(model, ctx)
        model.touch()
        return True


def test_a_pass_sees_one_region_at_a_time_and_the_result_computes_the_same():
    model = placed()
    before = outputs(model)
    ReluToMax.seen.clear()
    result = run(Pipeline([Nested("acme", (ReluToMax(),))]), model)
    assert ReluToMax.seen == [["node_a", "node_b"], ["node_e", "node_p", "node_q", "node_y", "node_z"]]
    assert [node.op_type for node in model.graph] == ["Max", "Mul", "Tanh", "Mul", "If", "Max"]
    for name, array in outputs(model).items():
        np.testing.assert_array_equal(array, before[name])
    assert [remark.rule for remark in result.remarks] == ["max", "max"]
    assert [child.name for child in result.passes[0].children] == ["region 0", "region 2"]


def test_new_nodes_belong_to_the_region_and_new_names_are_free():
    """Both regions bring a node `node_d` and a weight `zero`; a node and a value outside have these names."""
    model = placed(text=TEXT.replace("half", "zero"))
    run(Pipeline([Nested("acme", (ReluToMax(),))]), model)
    names = [node.name for node in model.nodes()]
    assert len(set(names)) == len(names)
    assert {get_placement(node).backend for node in model.nodes() if node.op_type == "Max"} == {"acme"}
    assert sorted(model.graph.initializers) == ["w", "zero", "zero_1"]
    verify_model(model)


def test_weights_that_only_the_region_read_go_with_their_readers():
    def drop_product(model, ctx):
        product = next(node for node in model.graph if node.op_type == "Mul")
        product.replace_input_with(1, product.inputs[0])

    shared = placed(host=("d", "e", "y", "p", "q", "z"))
    run(Pipeline([Nested("acme", (Doing(drop_product),))]), shared)
    assert sorted(shared.graph.initializers) == ["half", "w"]
    alone = placed(host=("d", "e", "y", "p", "q", "z"), text=TEXT.replace("e = Mul (d, w)", "e = Neg (d)"))
    run(Pipeline([Nested("acme", (Doing(drop_product),))]), alone)
    assert sorted(alone.graph.initializers) == ["half"]


def test_a_nested_pipeline_inside_of_a_fixpoint_and_beside_others():
    plugins = dovetail.load_plugins()
    text = "fixpoint(backend:acme(dead-code,fold-constants)),backend:host(remove-identity)"
    model = placed(text=TEXT.replace("z = Relu (e)", "dead = Relu (e) z = Identity (e)"), host=("z",))
    pipeline = Pipeline.parse(text, plugins.registry)
    assert str(pipeline) == text
    run(pipeline, model)
    assert [node.op_type for node in model.graph].count("Relu") == 1
    verify_model(model)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            lambda model, ctx: 1 / 0,
            "test_nested_pipelines in region 0 of acme failed: ZeroDivisionError",
        ),
        (
            lambda model, ctx: set_placement(model.graph[0], Placement("host")),
            "backend:acme(doing) in region 0 of acme: node 'node_a' of acme was placed on host",
        ),
        (
            lambda model, ctx: setattr(model.graph[0].outputs[0], "name", "w"),
            "in region 0 of acme left an invalid model: ",
        ),
        (
            lambda model, ctx: setattr(model.graph.outputs[0], "name", "other"),
            "in region 0 of acme left an invalid model: graph output 'b' is gone and 'other' is new",
        ),
        (
            lambda model, ctx: model.ir.opset_imports.update({"": 18}),
            "the region imports version 18 of domain '', and the model version 17",
        ),
    ],
    ids=["raises", "moves", "invalid", "interface", "opset"],
)
def test_what_a_pass_does_wrong_names_the_region(what, message):
    with pytest.raises(DovetailError) as caught:
        run(Pipeline([Nested("acme", (Doing(what),))]), placed())
    assert message in str(caught.value)


def test_the_types_at_the_border_of_a_region_stay():
    def half(model, ctx):
        for value in (*model.graph.inputs, *(out for node in model.graph for out in node.outputs)):
            value.type = ir.TensorType(ir.DataType.FLOAT16)
        for value in model.graph.initializers.values():
            value.const_value = ir.tensor(value.const_value.numpy().astype(np.float16), name=value.name)
            value.type = ir.TensorType(ir.DataType.FLOAT16)

    with pytest.raises(DovetailError) as caught:
        run(Pipeline([Nested("acme", (Doing(half),))]), placed())
    assert caught.value.message.endswith(
        "in region 0 of acme: the type of 'x' at the border of the region was float32, and is float16"
    )


def test_an_anchor_that_was_not_chosen_is_an_error_with_a_near_miss():
    with pytest.raises(UsageError, match=r"backend:amce\(...\): no backend 'amce' is chosen \(did you mean 'acme'\?\)"):
        run(Pipeline([Nested("amce", (ReluToMax(),))]), placed())
    # The placements of a model count as well as the request.
    run(Pipeline([Nested("acme", ())]), placed(), "cpu-bf16")


def test_a_model_without_placements_says_what_to_do():
    model = open_proto(onnx.parser.parse_model(TEXT))
    with pytest.raises(DovetailError, match="the model has no placements\n  run `place` before it"):
        run(Pipeline([Nested("host", (ReluToMax(),))]), model)


def test_a_backend_without_a_region_is_a_remark():
    result = run(Pipeline([Nested("acme", ())]), placed(host=("a", "b", "d", "e", "y", "p", "q", "z")))
    assert [remark.why for remark in result.remarks] == ["backend:acme() did nothing: acme has no region"]


def test_what_watches_a_pipeline_works_inside():
    out, steps = io.StringIO(), []
    watch = {"print_after": ("relu-to-max",), "out": out, "progress": lambda what, done, total: steps.append(what)}
    result = run(Pipeline([Nested("acme", (ReluToMax(),))]), placed(), **watch)
    assert [line for line in out.getvalue().splitlines() if line.startswith("// -----")] == [
        "// ----- after relu-to-max in region 0 of acme -----",
        "// ----- after relu-to-max in region 2 of acme -----",
    ]
    assert steps[1:3] == ["backend:acme, region 1 of 2", "backend:acme, region 2 of 2"]
    assert any("region 2" in line for line in timing_lines(result))
    stopped = run(Pipeline([Nested("acme", (ReluToMax(),))]), placed(), stop_after="relu-to-max")
    assert len(stopped.passes[0].children) == 1
    with pytest.raises(UsageError, match="did you mean 'relu-to-max'"):
        run(Pipeline([Nested("acme", (ReluToMax(),))]), placed(), stop_after="relu-to-mux")


def test_a_saved_result_is_the_input_of_a_nested_pipeline(tmp_path, capsys):
    from dovetail.cli.main import main

    digits = "examples/digits/digits.onnx"
    dovetail.compile(digits, "cpu-bf16", pins="conv_2=host").save(tmp_path / "out")
    model = tmp_path / "out" / "model.onnx"
    text = "backend:cpu-bf16(fold-constants,dead-code)"
    assert main(["opt", str(model), "-p", text, "-o", str(tmp_path / "again.onnx"), "--timing"]) == 0
    assert capsys.readouterr().err.count("region") == 2
    again = onnx.load(tmp_path / "again.onnx")
    assert {entry.value for node in again.graph.node for entry in node.metadata_props if "backend" in entry.key} == {
        "cpu-bf16",
        "host",
    }
    assert main(["opt", str(model), "-p", "backend:cpu-bf61(dead-code)"]) == 2
    assert "no backend 'cpu-bf61' is chosen (did you mean 'cpu-bf16'?)" in capsys.readouterr().err


def test_a_crash_inside_is_replayed_from_its_reproducer(tmp_path, capsys):

    plugins = dovetail.load_plugins()
    plugins.registry.pass_("crash-here", f"{CrashHere.__module__}:CrashHere")
    text = "normalize,edge-kinds,place,backend:host(crash-here)"
    file = tmp_path / "crash.onnx"
    with pytest.raises(DovetailError, match="in region 0 of host failed: KeyError"):
        Pipeline.parse(text, plugins.registry).run(
            dovetail.open("examples/digits/digits.onnx"),
            Context(Request.of("host"), plugins=plugins),
            Instrumentation(reproducer=file),
        )
    from dovetail_commands.opt import run_reproducer

    with pytest.raises(DovetailError, match="in region 0 of host failed: KeyError"):
        run_reproducer(file, plugins.registry, plugins=plugins)


@dataclass(frozen=True)
class CrashHere(Pass):
    """Crash."""

    name: ClassVar[str] = "crash-here"

    def run(self, model, ctx):
        raise KeyError("x")


OPERATORS = ("Relu", "Tanh", "Identity", "Neg")


@st.composite
def graphs(draw):
    lines, values = [], ["x"]
    for i in range(draw(st.integers(2, 14))):
        source = draw(st.sampled_from(values[-4:]))
        if draw(st.booleans()):
            lines.append(f"v{i} = {draw(st.sampled_from(OPERATORS))} ({source})")
        else:
            lines.append(f"v{i} = Add ({source}, {draw(st.sampled_from(['w', *values]))})")
        values.append(f"v{i}")
    text = "\n".join(lines)
    head = '<ir_version: 8, opset_import: ["": 17]>'
    model = f"{head}\ng (float[2] x) => (float[2] {values[-1]}) <float[2] w = {{1, 2}}> {{\n{text}\n}}"
    return model, frozenset(draw(st.lists(st.sampled_from(values), max_size=8)))


@settings(max_examples=60 if os.environ.get("DOVETAIL_SLOW") else 25, deadline=None)
@given(graphs())
def test_random_graphs_compute_the_same_after_nested_pipelines(drawn):
    text, host = drawn
    model = placed(host=host, text=text)
    (expected,) = RegionExecutor(model, ENGINES).run({"x": FEEDS["x"]}).values()
    pipeline = Pipeline.parse("backend:acme(remove-identity,dead-code),backend:host(remove-identity)", REGISTRY)
    pipeline = Pipeline([*pipeline, Nested("acme", (ReluToMax(),))])
    pipeline.run(model, Context(Request.of("acme"), registry=REGISTRY))
    (found,) = RegionExecutor(model, ENGINES).run({"x": FEEDS["x"]}).values()
    np.testing.assert_array_equal(found, expected)
    names = [node.name for node in model.nodes()]
    assert len(set(names)) == len(names)


REGISTRY = dovetail.load_plugins().registry


def test_a_region_that_folds_away_leaves_its_result():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
      z = Add (w, v)
      y = Mul (x, z)
    }"""
    model = placed(host=("y",), text=text)

    def fold(part, ctx):
        (node,) = part.graph
        constant = ir.Value(name="z", const_value=ir.tensor(np.array([4, 6], np.float32), name="z"))
        constant.type, constant.shape = node.outputs[0].type, node.outputs[0].shape
        part.graph.outputs[0] = constant
        part.graph.remove(node, safe=True)
        part.graph.initializers.clear()
        part.graph.initializers.add(constant)

    run(Pipeline([Nested("acme", (Doing(fold),))]), model)
    assert [node.op_type for node in model.graph] == ["Mul"]
    assert sorted(model.graph.initializers) == ["z"]
    found = RegionExecutor(model, ENGINES).run({"x": FEEDS["x"]})
    np.testing.assert_array_equal(found["z"], [4, 6])
    np.testing.assert_array_equal(found["y"], FEEDS["x"] * [4, 6])
