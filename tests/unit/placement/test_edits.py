"""Edits: changes of the graph by name, applied before placement, recorded in the plan, and applied again on replay."""

import os
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import Context, Pipeline, Request
from dovetail.plugin import Edit, Editor

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
IMAGE = {"image": np.load(ROOT / "examples" / "digits" / "test.npz")["image"][:1]}


@pytest.fixture
def plugins(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "example_tools" / "src"))
    found = dovetail.load_plugins()
    found.registry.edit("unit-conv", "dovetail_example_tools.unit_conv:UnitConv")
    for name in ("Crash", "Untyped", "Loses", "Invalid", "After", "Nothing", "Lacks", "Stranger"):
        found.registry.edit(name.lower(), f"{__name__}:{name}")
    return found


class Base(Editor):
    sides = ("before", "after")


class Crash(Base):
    def apply(self, model, node, side, ctx):
        return 1 / 0


class Untyped(Base):
    def apply(self, model, node, side, ctx):
        node.outputs[0].type = None
        return [node]


class Loses(Base):
    def apply(self, model, node, side, ctx):
        model.graph.outputs[0].name = "lost"
        return []


class Invalid(Base):
    def apply(self, model, node, side, ctx):
        node.outputs[0].name = node.inputs[0].name
        return []


class After(Base):
    sides = ("after",)

    def apply(self, model, node, side, ctx):
        return []


class Nothing(After):
    def apply(self, model, node, side, ctx):
        return None


class Stranger(After):
    def apply(self, model, node, side, ctx):
        return ["a node"]


class Lacks(Editor):
    def apply(self, model, node, side, ctx):
        return []


def unit_convs(compiled):
    return [node.name for node in compiled.model.graph if "unit" in node.name]


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_edit_that_changes_no_number(plugins, side):
    edited = dovetail.compile(DIGITS, "host", edits=f"unit-conv=conv_2:{side}", plugins=plugins)
    assert unit_convs(edited) == ["conv_2_unit_conv"]
    names = [node.name for node in edited.model.graph]
    distance = names.index("conv_2_unit_conv") - names.index("conv_2")
    assert distance == (1 if side == "after" else -1)
    expected = dovetail.compile(DIGITS, "host", plugins=plugins).run(IMAGE)
    for name, array in edited.run(IMAGE).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    assert f"unit-conv added 'conv_2_unit_conv' {side} it" in "\n".join(dovetail.explain(edited, "conv_2"))
    assert f"unit-conv added it {side} 'conv_2'" in "\n".join(dovetail.explain(edited, "conv_2_unit_conv"))


def test_a_plan_records_edits_and_a_replay_applies_them_before_pins(plugins, tmp_path):
    request = {"edits": ["unit-conv=conv_2", Edit("unit-conv", "conv_3", "before")], "pins": "conv_1=host"}
    first = dovetail.compile(DIGITS, "cpu-bf16", **request, plugins=plugins)
    first.save(tmp_path / "first")
    (one, two) = dovetail.load(tmp_path / "first", plugins).plan.edits
    assert (one["kind"], one["side"], one["operator"]) == ("unit-conv", "after", "Conv")
    assert (two["at"], two["side"]) == (next(n.output for n in first.plan.nodes if n.name == "conv_3"), "before")
    again = dovetail.compile(DIGITS, plan=tmp_path / "first", plugins=plugins)
    again.save(tmp_path / "again")
    assert len(unit_convs(again)) == 2
    assert [node.output for node in again.plan.nodes] == [node.output for node in first.plan.nodes]
    assert again.plan.edits == first.plan.edits
    assert not [remark for remark in again.remarks if remark.rule == "plan-entry"]
    # An edit that the plan has already is not made a second time.
    both = dovetail.compile(DIGITS, plan=tmp_path / "first", edits="unit-conv=conv_2", plugins=plugins)
    assert len(unit_convs(both)) == 2


def test_edits_are_part_of_what_a_result_is_recognized_by(plugins, tmp_path):
    dovetail.compile(DIGITS, "host", edits="unit-conv=conv_2", plugins=plugins).save(tmp_path)
    model = tmp_path / "model.onnx"
    same = dovetail.compile(model, "host", edits="unit-conv=conv_2", plugins=plugins)
    assert same.saved.file == model
    other = dovetail.compile(model, "host", plugins=plugins)
    assert other.saved is None


def test_an_edit_of_a_plan_finds_its_node_in_another_export(plugins):
    plan = dovetail.plan(DIGITS, "host", edits="unit-conv=conv_2", plugins=plugins)
    other = onnx.load(DIGITS)
    for node in other.graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [f"other_{name}" if name in INNER else name for name in names]
    found = dovetail.compile(other, plan=plan, plugins=plugins)
    assert len(unit_convs(found)) == 1
    assert found.plan.edits[0]["at"].startswith("other_")


INNER = {
    name
    for node in onnx.load(DIGITS).graph.node
    for name in node.output
    if name not in [value.name for value in onnx.load(DIGITS).graph.output]
}


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ("unit-cnv=conv_2", "unknown edit 'unit-cnv' (did you mean 'unit-conv'"),
        ("unit-conv=conv_22", "edit 'unit-conv=conv_22:after': the model has no node 'conv_22' (did you mean 'conv_2'"),
        (["unit-conv=conv_2", "unit-conv=conv_2:after"], "edit 'unit-conv=conv_2:after' is asked for twice"),
        ("unit-conv=dense_1", "unit-conv: 'dense_1' has no image with a known number of channels after it"),
        ("unit-conv=norm_2", "edit 'unit-conv=norm_2:after': 'norm_2' was folded into 'conv_2'"),
        ("after=conv_2:before", "edit 'after' of this program cannot be made before a node\n  it can after one"),
        ("crash=conv_2", "edit 'crash' of this program at 'conv_2' failed: ZeroDivisionError: division by zero"),
        ("nothing=conv_2", "edit 'nothing' of this program at 'conv_2' failed: TypeError"),
        ("untyped=conv_2", "edit 'untyped' of this program at 'conv_2' gives '"),
        ("loses=conv_2", "edit 'loses' of this program at 'conv_2' changes the inputs or outputs of the model"),
        ("invalid=conv_2", "edit 'invalid' of this program left an invalid model: "),
        ("stranger=conv_2", "edit 'stranger' of this program at 'conv_2' returns what is no node of the model"),
        ("lacks=conv_2", "edit 'lacks' of this program has no sides"),
    ],
)
def test_bad_edits_are_one_clear_error(plugins, edits, message):
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(DIGITS, "host", edits=edits, plugins=plugins)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["unit-conv", "unit-conv=", "=conv_2", "unit-conv=:after"])
def test_text_that_is_no_edit(text, capsys):
    with pytest.raises(UsageError, match="is not an edit"):
        Edit.parse(text)
    assert main(["compile", str(DIGITS), "--backend", "host", "--edit", text]) == 2
    assert "is not an edit; write KIND=NODE" in capsys.readouterr().err


def test_the_text_of_an_edit_round_trips():
    for text in ("unit-conv=conv_2:after", "unit-conv=a:b:before", "a=b=c:after"):
        assert str(Edit.parse(text)) == text
    assert Edit.parse("unit-conv=ns:op") == Edit("unit-conv", "ns:op", "after")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"kind": "unit-conv"}', "an edit needs 'kind', 'at'"),
        ('{"kind": "unit-conv", "at": "conv_2", "side": "over"}', "an edit needs 'kind', 'at'"),
        ('{"kind": "unit-conv", "at": "conv_2", "sde": "after"}', "an edit has no 'sde' (did you mean 'side'?)"),
        ('["unit-conv", "conv_2"]', "is not an edit"),
        ('{"kind": "unit-conv", "at": 3}', "is not an edit"),
    ],
)
def test_a_malformed_edit_in_a_plan_names_its_line(plugins, tmp_path, entry, message):
    path = tmp_path / "plan.yaml"
    text = str(dovetail.plan(DIGITS, "host", plugins=plugins)).replace("edits: []", f"edits:\n- {entry}")
    path.write_text(text)
    line = text.splitlines().index(f"- {entry}") + 1
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(DIGITS, plan=path, plugins=plugins)
    assert f"{path}:{line}: " in str(caught.value)
    assert message in str(caught.value)


def test_an_edit_of_a_plan_whose_node_is_another_operator_is_refused(plugins):
    plan = dovetail.plan(DIGITS, "host", edits="unit-conv=conv_2", plugins=plugins)
    plan.edits[0] |= {"operator": "Relu", "key": ""}
    with pytest.raises(DovetailError, match="of the plan fits no node of this model: '.*' is computed by Conv here"):
        dovetail.compile(DIGITS, plan=plan, plugins=plugins)


def test_edits_on_the_command_line(plugins, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("dovetail.plugin.loading.loader.load_plugins", lambda **_: plugins)
    out = tmp_path / "out"
    assert main(["compile", str(DIGITS), "--backend", "host", "--edit", "unit-conv=conv_2", "-o", str(out)]) == 0
    assert "host 14" in capsys.readouterr().out.splitlines()[-1]
    assert os.path.exists(out / "plan.yaml")
    text = "normalize,apply-edits"
    assert main(["opt", str(DIGITS), "-p", text, "--edit", "unit-conv=conv_2:before", "--stats"]) == 0
    assert "1  apply-edits  edits" in capsys.readouterr().err


def test_every_command_that_compiles_takes_edits(capsys, tmp_path):
    np.savez(tmp_path / "data.npz", **IMAGE)
    request = [str(DIGITS), "--backend", "cpu-bf16", "--data", str(tmp_path / "data.npz"), "--edit", "unit-cnv=conv_2"]
    for command in ("plan", "compile", "bisect"):
        assert main([command, *request]) == 1
        assert "error: unknown edit 'unit-cnv'" in capsys.readouterr().err


@pytest.mark.slow
def test_as_many_edits_as_nodes(plugins):
    plugins.registry.edit("same", f"{__name__}:After")
    lines = "\n".join(f"v{i + 1} = Relu (v{i})" for i in range(3000))
    text = f'<ir_version: 8, opset_import: ["": 17]>\ng (float[2] v0) => (float[2] v3000) {{\n{lines}\n}}'
    model = dovetail.open(onnx.parser.parse_model(text))
    request = Request.of("host", edits=[f"same=v{i}" for i in range(1, 3000)])
    ctx = Context(request, plugins=plugins)
    Pipeline.parse("normalize,apply-edits", plugins.registry).run(model, ctx)
    assert len(ctx.round.edits) == 2999
