"""The vendor's kit: nodes at limits, targets and their contracts, coverage, differences."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.planning import Remark
from dovetail.plugin.loading import load_chosen, use_file
from dovetail_testing.kit import installed
from dovetail_testing.kit.coverage import coverage
from dovetail_testing.kit.differences import differences
from dovetail_testing.kit.installed import check_installed
from dovetail_testing.kit.limit_models import LimitModels

HEAD = """
backend: acme-kit
device: npu
opset: 13..22
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
"""
TAIL = """
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""
OPS = """
ops:
  Conv:
    types: f
    policy: lower
    shape: {X: N C H W, W: M Cg KH KW, strides: SH SW}
    limits:
      - KH, KW: 1..7
        KH*KW*Cg: ..512
        SH: ..3
        W.constant: true
      - {when: {group: 2..}, M: ..64}
  Gemm: {types: f, policy: lower, limits: {alpha: 1, A.rank: 2, transA: 0}}
  Softmax: {types: f, policy: lower, limits: {input.rank: 1..3}}
  MaxPool: {types: f, policy: lower, limits: {kernel_shape: ..4}}
"""


def found_limits(plugins, name="acme-kit"):
    models = LimitModels(load_chosen(plugins.registry, BackendChoice(name)), plugins)
    return models, {(one.operator, one.limit): one for op in models.operators() for one in models.limits(op)}


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    file = tmp_path_factory.mktemp("kit") / "kit.backend.yaml"
    file.write_text(HEAD + OPS + TAIL)
    found = dovetail.load_plugins()
    use_file(found.registry, str(file))
    return found


@pytest.mark.slow
def test_nodes_are_made_on_both_sides_of_limits(plugins):
    models, found = found_limits(plugins)
    values = {key: (one.value, one.both) for key, one in found.items()}
    assert values[("Conv", "KH: 1..7")] == (7, True) or values[("Conv", "KH: 1..7")] == (1, True)
    assert values[("Conv", "SH: ..3")] == (3, True)
    assert values[("Conv", "W.constant: true")][1]
    assert values[("Conv", "KH*KW*Cg: ..512")][1]
    assert values[("Softmax", "input.rank: 1..3")] == (3, True)
    assert values[("MaxPool", "kernel_shape: ..4")] == (4, True)
    assert values[("Gemm", "alpha: 1")][1]
    for one in found.values():
        if one.both:
            assert models.judged(one.kept).ok is not False
            (reason,) = models.judged(one.broken).reasons
            assert reason.source == one.source


def test_a_limit_that_no_node_reaches_is_a_note_not_a_failure(with_backend):
    plugins = with_backend(HEAD + "ops: {Relu: {types: f, policy: lower, limits: {X.consumers: ..5}}}" + TAIL)
    found = check_installed("acme-kit", plugins)
    assert found.problems == []
    assert any("Relu: no node is refused by X.consumers: ..5" in note for note in found.notes)


def test_an_engine_that_computes_something_else_is_a_problem(with_backend):
    text = HEAD + "ops: {Relu: {types: f, policy: lower}}" + TAIL.replace("onnxruntime-cpu", "acme-wrong")
    plugins = with_backend(text)
    plugins.registry.engine(
        "acme-wrong", f"{__name__.rpartition('.')[0]}.wrong_engine:Wrong" if "." in __name__ else "wrong_engine:Wrong"
    )
    found = check_installed("acme-kit", plugins)
    assert any("Relu on acme-kit" in text or "acme-wrong" in text for text in found.problems)


def test_what_passed_is_tried_again_only_where_something_changed(with_backend, tmp_path, monkeypatch):
    tried, measure = [], installed.measure
    monkeypatch.setattr(installed, "measure", lambda case, *rest: tried.append(case.name) or measure(case, *rest))
    text, passed = HEAD + "ops: {Relu: {types: f, policy: lower}}" + TAIL, tmp_path / "passed.jsonl"
    first = check_installed("acme-kit", with_backend(text), resume=passed)
    assert tried and first.problems == [] and first.resumed == 0
    tried.clear()
    again = check_installed("acme-kit", with_backend(text), resume=passed)
    assert not tried and (again.measured, again.resumed) == (first.measured, len(first.measured))
    check_installed("acme-kit", with_backend(text.replace("ops:", "# a comment\nops:")), resume=passed)
    assert tried
    passed.write_text("a letter")
    with pytest.raises(DovetailError, match="passed.jsonl:1: no line of conformance results"):
        check_installed("acme-kit", with_backend(text), resume=passed)
    assert main(["check", "acme.backend.yaml", "--resume", str(passed)]) == 2


def test_what_did_not_run_there_is_not_kept(with_backend, tmp_path):
    """A license that is found the next time is no other version."""
    plugins = with_raising_emitter(with_backend, "MaxPool")
    assert check_installed("acme-kit", plugins, resume=tmp_path / "passed.jsonl").problems
    assert (tmp_path / "passed.jsonl").read_text() == ""


def with_raising_emitter(with_backend, operator):
    """The plugins with a backend of Relu and another operator whose emitter raises on every region."""
    text = HEAD + f"ops: {{Relu: {{types: f, policy: lower}}, {operator}: {{types: f, policy: lower}}}}"
    text += "\nplace: {strategy: autocast}\nemit: {engines: [acme-runs, onnxruntime-cpu], artifacts: [acme-raising]}"
    plugins = with_backend(text)
    here = __name__.rpartition(".")[0]
    module = f"{here}.raising_emitter" if here else "raising_emitter"
    plugins.registry.engine("acme-runs", f"{module}:Runs")
    plugins.registry.emitter("acme-raising", f"{module}:Raising")
    return plugins


def test_an_emitter_that_raises_on_every_region_is_a_problem(with_backend, monkeypatch, capsys):
    plugins = with_raising_emitter(with_backend, "MaxPool")
    (problem,) = check_installed("acme-kit", plugins).problems
    assert problem.startswith("none of the ") and "license not found" in problem
    monkeypatch.setattr("dovetail.plugin.loading.loader.load_plugins", lambda **_: plugins)
    assert main(["check", "--installed", "acme-kit"]) == 1
    printed = capsys.readouterr()
    assert "license not found" in printed.out
    assert "limits of MaxPool: 0 of 2" in printed.err


@pytest.mark.slow
def test_a_time_limit_and_an_interruption_leave_what_was_found(plugins):
    found = check_installed("acme-kit", plugins, time_limit=1e-9)
    assert "the time limit of 1e-09 s was reached at limits of Conv, 0 of 4" in found.unfinished
    assert any("unfinished" in line for line in found.lines())

    def interrupt(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    kept = []
    with pytest.raises(KeyboardInterrupt):
        check_installed("acme-kit", plugins, interrupt, interrupted=kept.append)
    assert kept[0].limits
    assert kept[0].unfinished == "interrupted at limits of MaxPool, 2 of 4"


def test_what_is_cut_off_says_what_was_left_to_the_host_until_then(with_backend):
    plugins = with_raising_emitter(with_backend, "Softmax")

    def interrupt(what, done, total):
        if what == "Softmax on engine and reference":
            raise KeyboardInterrupt

    kept = []
    with pytest.raises(KeyboardInterrupt):
        check_installed("acme-kit", plugins, interrupt, interrupted=kept.append)
    assert kept[0].unfinished == "interrupted at Softmax on engine and reference, 1 of 2"
    (problem,) = kept[0].problems
    assert "license not found" in problem


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "soon"])
def test_a_time_limit_that_is_none(text, capsys):
    assert main(["check", "--installed", "acme-kit", f"--time-limit={text}"]) == 2
    assert "write a number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name", "target", "says"),
    [
        ("engine", "acme-e", "nothing_of_this_name:Engine", "ModuleNotFoundError"),
        ("engine", "acme-e", "pathlib:Path", "is no Engine"),
        ("engine", "acme-e", "dovetail.plugin:Engine", "has no available, load"),
        ("strategy", "acme-s", "pathlib:Path", "is no Strategy"),
        ("emitter", "acme-m", "json:dumps", "is no Emitter"),
        ("fact", "acme_f", "sys:argv", "cannot be called"),
        ("command", "acme", "sys:argv", "has no add_arguments, run"),
    ],
)
def test_targets_that_break_their_contract(kind, name, target, says):
    plugins = dovetail.load_plugins()
    with plugins.registry.on_behalf_of("dovetail-host"):
        getattr(plugins.registry, kind)(name, target, *(("extend", "Break.") if kind == "command" else ()))
    from dovetail_testing.kit.targets import targets_of

    (found,) = [one for one in targets_of("dovetail-host", plugins) if one.name == name]
    assert says in found.problem


@pytest.mark.slow
def test_every_target_of_this_repository_keeps_its_contract():
    from dovetail_testing.kit.targets import targets_of

    plugins = dovetail.load_plugins()
    owners = {record.distribution for record in plugins.plugins if record.distribution.startswith("dovetail-")}
    bad = [one for owner in owners for one in targets_of(owner, plugins) if one.problem]
    assert bad == []


def test_plugins_lists_what_does_not_load(capsys, monkeypatch):
    plugins = dovetail.load_plugins()
    with plugins.registry.on_behalf_of("dovetail-host"):
        plugins.registry.engine("acme-e", "nothing_of_this_name:Engine")
    monkeypatch.setattr("dovetail.plugin.loading.loader.load_plugins", lambda **_: plugins)
    assert main(["plugins"]) == 0
    assert "does not load  engine acme-e: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["no-such-backend", "", "n" * 100_000])
def test_nothing_of_that_name(capsys, name):
    assert main(["check", "--installed", name]) == 2
    assert "is installed" in capsys.readouterr().err


NEEDY = "region: {need: [Conv], limits: {nodes: 2.., inputs: ..9}}\n"


def test_single_nodes_are_tried_whatever_a_region_needs(with_backend):
    """A Relu alone is no region that pays off, but what the file says of Relu is still to be checked."""
    plugins = with_backend(HEAD + NEEDY + "ops:\n  Conv, Relu, Add: {types: f, policy: lower}\n" + TAIL)
    found = check_installed("acme-kit", plugins)
    assert found.problems == []
    assert {one.outcome for one in found.measured} == {"compared"}
    assert {one.operator for one in found.measured} >= {"Conv", "Relu", "Add"}
    (note,) = [note for note in found.notes if "alone" in note]
    assert "need: [Conv] [" in note and "nodes: 2.. [" in note and "inputs" not in note
    compiled = dovetail.compile(onnx.parser.parse_model(RELU), "acme-kit", plugins=plugins)
    assert compiled.coverage().startswith("acme-kit 0/1 node (all refused), host 1")  # as for any user


RELU = '<ir_version: 9, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu (x) }'


def test_check_needs_one_thing_to_check(capsys):
    assert main(["check"]) == 2
    assert "no file is named" in capsys.readouterr().err
    assert main(["check", "x.yaml", "--installed", "host"]) == 2


NET = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[1, 3, 8, 8] x) => (float[1, 8, 6, 6] y) {
  a = Conv (x, w)
  b = Erf (a)
  c = Conv (x, w)
  y = Add (b, c)
}
"""


def net():
    model = onnx.parser.parse_model(NET)
    weight = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def test_coverage_counts_nodes_work_and_borders(with_backend):
    plugins = with_backend(HEAD + "ops:\n  Conv, Add: {types: f, policy: lower}\n" + TAIL)
    found = coverage("acme-kit", [net()], plugins=plugins)
    (erf,) = found.missing
    assert (erf.operator, erf.nodes, erf.taken, erf.borders) == ("Erf", 1, 0, 2)
    assert 0 < erf.work < found.work / 3
    assert (found.nodes, found.taken) == (4, 3)
    assert "does not list Erf" in next(iter(erf.reasons))


def test_coverage_of_a_backend_that_takes_fixed_shapes(with_backend, tmp_path, capsys):
    fixed = HEAD + "dynamic: refuse\nops:\n  Conv, Add: {types: f, policy: lower}\n" + TAIL
    plugins = with_backend(fixed)
    model = net()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    name = model.graph.input[0].name
    extents = [dim.dim_value or 1 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert coverage("acme-kit", [model], plugins=plugins).taken == 0
    assert coverage("acme-kit", [model], plugins=plugins, fix_shapes={name: extents}).taken == 3
    (tmp_path / "acme.backend.yaml").write_text(fixed)
    onnx.save(model, tmp_path / "net.onnx")
    words = ["coverage", str(tmp_path / "acme.backend.yaml"), str(tmp_path / "net.onnx")]
    assert main([*words, "--fix-shape", f"{name}:{'x'.join(map(str, extents))}"]) == 0
    assert "takes 3 of 4 nodes" in capsys.readouterr().out


def test_differences_of_backend_files(tmp_path):
    (tmp_path / "one.yaml").write_text(HEAD + OPS + TAIL)
    other = OPS.replace("KH, KW: 1..7", "KH, KW: 1..5").replace(
        "Softmax: {types: f, policy: lower", "Softmax: {types: f, policy: fp32"
    )
    (tmp_path / "two.yaml").write_text(HEAD + other + "  Erf: {types: f}\n" + TAIL)
    plugins = dovetail.load_plugins()
    kind, found = differences(str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), plugins)
    assert kind == "backends"
    rows = {(one.what, one.part): (one.first, one.second) for one in found}
    assert "KW: 1..7" in rows[("Conv", "limits")][0]
    assert "KW: 1..5" in rows[("Conv", "limits")][1]
    assert rows[("Softmax", "policy")] == ("lower", "fp32")
    assert rows[("Erf", "support")] == ("refuse", "yes")
    assert differences(str(tmp_path / "one.yaml"), str(tmp_path / "one.yaml"), plugins)[1] == []


def test_differences_of_plans(tmp_path, plugins):
    model = net()
    dovetail.plan(model, "acme-kit", plugins=plugins).save(tmp_path / "one.yaml")
    dovetail.plan(model, "acme-kit", high="type:Conv", plugins=plugins).save(tmp_path / "two.yaml")
    kind, found = differences(str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), plugins)
    assert kind == "plans"
    assert {one.part for one in found} >= {"precision"}
    with pytest.raises(UsageError, match="is a plan, and host a backend"):
        differences(str(tmp_path / "one.yaml"), "host", plugins)


@pytest.mark.parametrize(("factor", "same"), [(1.00005, True), (1.001, False)])
def test_plans_whose_scales_differ_in_the_last_digits_are_the_same(factor, same, tmp_path):
    """Sums in another order give other scales on another CPU."""
    data = [{"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}]
    made = dovetail.compile(net(), "cpu-int8", data=data, verify=False)
    made.plan.save(tmp_path / "one.yaml")
    for forms in made.plan.values.values():
        for form in forms:
            if "scale" in form:
                form["scale"] = (np.float64(form["scale"]) * factor).tolist()
    made.plan.save(tmp_path / "two.yaml")
    kind, found = differences(str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), dovetail.load_plugins())
    assert kind == "plans" and bool(found) != same and {one.part for one in found} <= {"scale"}


def test_a_reason_that_only_one_plan_has_is_a_difference(tmp_path):
    made = dovetail.compile(net(), "cpu-bf16", verify=False)
    made.plan.save(tmp_path / "one.yaml")
    made.plan.remarks.append(Remark("analysis", made.plan.nodes[0].name, "acme", "acme-rule", "because"))
    made.plan.save(tmp_path / "two.yaml")
    _, found = differences(str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), dovetail.load_plugins())
    assert [(one.part, "acme-rule" in one.second) for one in found] == [("reasons", True)]


def test_models_that_no_reference_computes_are_not_held_against_a_backend(with_backend):
    types = "types: {q: {dtype: int8, scheme: asymmetric, observer: minmax}}\ndynamic: refuse\n"
    head = HEAD.replace("low: float16, high: float32", "low: int8, high: float32, accumulate: int32")
    head = head.replace("types: {f: [float16, float32]}\n", types)
    rule = "ops: {Reshape: {role: passive, types: q, same_scale: true, limits: {out0.rank: 2}}}"
    found = check_installed("acme-kit", with_backend(head + rule + TAIL))
    assert found.problems == []
    assert [one.name for one in found.measured if one.outcome == "compared"] == ["Reshape out0.rank: 2"]
