"""A pass that spoils a model, and a hook that edits one, are caught at once and named with their distribution."""

import json

import onnx
import pytest
from dovetail.cli.main import main

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2] x, float[2] u) => (float[2] y, float[2] z) {
  [neg] n = Neg (x)  [relu] y = Relu (n)  [add] z = Add (y, u) }"""

PASS = """
from dataclasses import dataclass
import onnx_ir as ir
from dovetail.passes import Pass

@dataclass(frozen=True)
class Acme(Pass):
    name = "acme-pass"
    stage = "analyze"

    def run(self, model, ctx):
        {body}
        model.touch()
        return True
"""


@pytest.fixture
def command(tmp_path, monkeypatch, install, plugin, capsys):
    """Install the plugin `acme` with a pass or with hooks, then compile a small model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnxtxt").write_text(MODEL)

    def run(body="", *arguments, **hooks):
        if body:
            hooks["register"] = 'registry.pass_("acme-pass", "acme_passes:Acme")'
        files = {"acme_plugin.py": plugin(**hooks), "acme_passes.py": PASS.format(body=body or "pass")}
        install("dovetail-acme", {"acme": "acme_plugin"}, files)
        code = main(["compile", "m.onnxtxt", "--backend", "host", *arguments])
        return code, *capsys.readouterr()

    return run


SPOILS = {
    "model.graph.outputs.pop()": "graph output 'z' is gone",
    "model.graph.outputs[0].name = 'renamed'": "graph output 'y' is gone and 'renamed' is new",
    "model.graph.outputs.reverse()": "the graph's outputs are ['z', 'y'], and were ['y', 'z']",
    "model.graph.outputs.append(model.graph[0].outputs[0])": "graph output 'n' is new",
    "model.graph.inputs[1].name = 'v'": "graph input 'u' is gone and 'v' is new",
    "model.graph.inputs.append(ir.val('extra'))": "graph input 'extra' is new",
    "model.graph.outputs.clear()": "graph output 'y' is gone",
}


@pytest.mark.parametrize("body", SPOILS)
def test_a_pass_that_changes_the_interface_is_named(command, body):
    code, _, err = command(body)
    assert code == 1
    assert f"error: pass 'acme-pass' of dovetail-acme left an invalid model: {SPOILS[body]}" in err
    assert "defect of the pass" in err and "dovetail opt dovetail-reproducer.onnx --run-reproducer" in err


@pytest.mark.parametrize("act", ["SystemExit(0)", "RecursionError('deep')", "MemoryError", "BaseException"])
def test_a_pass_cannot_end_a_command_silently(command, act):
    code, out, err = command(f"raise {act}", "--json")
    assert code == 1
    assert "pass 'acme-pass' of dovetail-acme failed: " in json.loads(out)["error"]


EDITS = {
    "a node": "model.graph.remove(model.graph[0])",
    "an input": "model.graph[0].replace_input_with(0, model.graph.inputs[1])",
    "an attribute": "import onnx_ir; model.graph[0].attributes['k'] = onnx_ir.AttrInt64('k', 1)",
    "an output": "model.graph.outputs[0].name = 'w'",
    "nothing but the revision": "model.touch()",
}


@pytest.mark.parametrize("hook", ["before_pass", "after_pass"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_hook_that_edits_the_model_is_named(command, hook, edit):
    # Looking at the graph first: `before_pass` of the first passes sees a model that has none yet.
    code, _, err = command(**{hook: f"if pass_.name not in ('lower-paddle', 'normalize'): {edit}"})
    assert code == 1
    assert f"error: hook {hook} of dovetail-acme changed the model, but a hook may only observe it" in err
    assert "--no-plugin acme" in err


def test_a_hook_that_drops_a_node_before_the_first_pass_is_named(command):
    code, _, err = command(before_pass="model.graph.remove(model.graph[0])")
    assert code == 1 and "hook before_pass of dovetail-acme changed the model" in err


def test_a_hook_that_edits_what_a_failed_pass_left_is_named(command):
    code, _, err = command("raise ValueError('no')", pass_failed="model.graph.outputs.pop()")
    assert code == 1 and "hook pass_failed of dovetail-acme changed the model" in err


def test_hooks_that_only_look_disturb_nothing(command):
    code, _, err = command(before_pass="list(model.nodes())", after_pass="seen.append(len(model.graph))")
    assert (code, err) == (0, "")


BROKEN = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2] x, int64[2] u) => (float[2] z) { [add] z = Add (x, u) }"""


def test_types_that_clash_in_the_file_are_not_blamed_on_a_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnxtxt").write_text(BROKEN)
    assert main(["compile", "m.onnxtxt", "--backend", "host"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: m.onnxtxt: the model is not correct: ") and "Add" in err
    assert "defect" not in err and not (tmp_path / "dovetail-reproducer.onnx").exists()


CONTRIBUTED = """<ir_version: 10, opset_import: ["" : 22, "com.microsoft": 1]>
g (float[2] x) => (bfloat16[2] z) { [gelu] a = com.microsoft.Gelu (x)  [neg] z = Neg (a) }"""


def test_types_that_only_onnx_runtime_knows_are_not_blamed_on_a_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnxtxt").write_text(CONTRIBUTED)
    assert main(["compile", "m.onnxtxt", "--backend", "host"]) == 1
    assert capsys.readouterr().err.startswith("error: m.onnxtxt: the model is not correct: ")


WEIGHTS = """<ir_version: 10, opset_import: ["" : 22]>
g (float[16,64] x) => (float[16,64] y) {
  k = Constant <value = float[64] {KKK}> ()  [mul] a = MatMul (x, w)  [add] y = Add (a, k) }"""


@pytest.mark.parametrize("asked", [False, True], ids=["by default", "on request"])
def test_a_reproducer_holds_weights_only_on_request(tmp_path, monkeypatch, install, plugin, capsys, asked):
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(WEIGHTS.replace("KKK", ", ".join(["0.123456"] * 64)))
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [64, 64], [0.654321] * 4096)
    proto.graph.initializer.append(weight)
    constant = onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [16, 64], [0.123456] * 1024)
    proto.graph.node[0].attribute[0].t.CopyFrom(constant)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    install("dovetail-acme", {"acme": "acme_plugin"}, {
        "acme_plugin.py": plugin(register='registry.pass_("acme-pass", "acme_passes:Acme")'),
        "acme_passes.py": PASS.format(body="raise ValueError(f'{len(model.graph)} nodes')"),
    })  # fmt: skip
    flag = ["--reproducer-weights"] if asked else []
    assert main(["compile", "m.onnx", "--backend", "host", *flag]) == 1
    error = capsys.readouterr().err
    content = (tmp_path / "dovetail-reproducer.onnx").read_bytes()
    for value in (0.654321, 0.123456):
        assert (onnx.numpy_helper.from_array(onnx.numpy_helper.np.float32(value)).raw_data in content) == asked
    assert (len(content) < 4000) != asked
    assert main(["opt", "dovetail-reproducer.onnx", "--run-reproducer"]) == 1
    again = capsys.readouterr().err
    assert "failed: ValueError: 2 nodes" in error and "failed: ValueError: 2 nodes" in again
