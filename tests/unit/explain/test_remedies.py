"""What might bring a node to a backend is tried on the plan before `explain` names it."""

import shutil
from collections import Counter

import dovetail
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import hookimpl, remedy

FILE = """
backend: npu
device: npu
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
options: {generation: ["1", "2"]}
types: {f: [float16, float32]}
ops:
  Relu, Add: {types: f}
  Sigmoid: {types: f, limits: {X.rank: ..2}}
variants:
  - when: {generation: "2"}
    ops: {Sigmoid: {types: f, limits: {X.rank: ..4}}}
place: {strategy: STRATEGY}
emit: {engines: [onnxruntime-cpu]}
"""

STRATEGIES = """
from dovetail.plugin import Claims, Remedy, remedy
from dovetail_placement.strategies.every_node import Autocast

class Choosy(Autocast):
    def claim(self, view, backend):
        return Claims([claim for claim in super().claim(view, backend).claims if claim.node.op_type != "Add"])

    def remedies(self, view, node):
        yield Remedy("ask nicely", pins=("name:nothing=npu",))

class Failing(Autocast):
    def remedies(self, view, node):
        raise SystemExit(3)

class Proposing(Autocast):
    def remedies(self, view, node):
        for other in ("n4", "n9", "n14", "n19", "n24"):
            yield Remedy(f"--pin {other}=npu", pins=(f"{other}=npu",))

class Withdrawing(Autocast):
    def fix_up(self, view, claims):
        # Gives Add back, whoever wants it here, and suggests to want it.
        for claim in claims.claims:
            if claim.node.op_type == "Add":
                view.remark("missed", claim.node, "alone", "it would be alone", suggest=remedy(("add=npu",)))
        return Claims([claim for claim in claims.claims if claim.node.op_type != "Add"])
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,3,4] x) => (float[2,3,4] y) {
  [relu] a = Relu (x)
  [sigmoid] b = Sigmoid (a)
  [det] c = Einsum <equation = "ijk->ijk"> (b)
  [add] y = Add (c, c)
}"""


@pytest.fixture
def plugins(with_backend, tmp_path):
    def make(strategy="autocast"):
        plugins = with_backend(FILE.replace("STRATEGY", strategy.lower()))
        if strategy != "autocast":
            (tmp_path / "choosy_strategies.py").write_text(STRATEGIES)
            with plugins.registry.on_behalf_of("dovetail-choosy"):
                plugins.registry.strategy(strategy.lower(), f"choosy_strategies:{strategy}")
        return plugins

    return make


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def tried(result, node, plugins, **options):
    return [line for line in dovetail.explain(result, node, plugins=plugins, **options) if "tried" in line]


def test_another_value_of_an_option_helps(plugins, file):
    installed = plugins()
    plan = dovetail.plan(file, "npu", plugins=installed)
    assert tried(plan, "sigmoid", installed) == [
        "tried in vain for npu: --pin 'sigmoid=npu' (pin 'name:sigmoid=npu': npu refuses 'sigmoid': X.rank = 3; "
        "allowed: ..2)",
        "tried: --backend npu:generation=2 brings it to npu, which has 3 nodes then",
    ]


def test_a_pin_helps_where_the_strategy_left_a_node_that_the_backend_takes(plugins, file):
    """What the strategy itself suggests comes first."""
    installed = plugins("Choosy")
    plan = dovetail.plan(file, "npu", plugins=installed)
    in_vain, helps = tried(plan, "add", installed)
    assert in_vain.startswith("tried in vain for npu: ask nicely (no node matches 'name:nothing'")
    assert helps == "tried: --pin 'add=npu' brings it to npu, which has 2 nodes then"


def test_fixed_shapes_help_where_the_model_leaves_extents_open(with_backend, tmp_path):
    path = tmp_path / "open.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.replace("2,3,4", "N,2").replace("ijk->ijk", "ij->ij")), path)
    installed = with_backend(FILE.replace("STRATEGY", "autocast").replace("dynamic: accept", "dynamic: refuse"))
    plan = dovetail.plan(path, "npu", plugins=installed)
    in_vain, helps = tried(plan, "sigmoid", installed)
    assert in_vain.startswith("tried in vain for npu: --pin")
    assert helps == "tried: --fix-shape x:1x2 brings it to npu, which has 3 nodes then"


def test_where_nothing_helps_that_is_said(plugins, file):
    installed = plugins()
    plan = dovetail.plan(file, "npu", plugins=installed)
    lines = tried(plan, "det", installed)
    assert len(lines) == 2
    assert all(line.startswith("tried in vain for npu: ") for line in lines)


def test_a_node_where_it_is_wanted_needs_no_remedy(plugins, file):
    installed = plugins()
    assert tried(dovetail.plan(file, "npu", plugins=installed), "relu", installed) == []


def test_a_folder_finds_its_model_by_name_and_digest(plugins, file, tmp_path, monkeypatch):
    installed = plugins()
    out = tmp_path / "folder" / "out"
    dovetail.compile(file, "npu", plugins=installed).save(out)
    monkeypatch.chdir(tmp_path)
    assert len(tried(out, "sigmoid", installed)) == 2
    shutil.move(file, tmp_path / "elsewhere.onnx")
    assert tried(out, "sigmoid", installed) == [
        "remedies were not tried, because model.onnx was not found: --model FILE"
    ]
    assert len(tried(out, "sigmoid", installed, model=tmp_path / "elsewhere.onnx")) == 2
    onnx.save(onnx.parser.parse_model(MODEL.replace("Relu", "Tanh")), tmp_path / "other.onnx")
    with pytest.raises(DovetailError, match="other.onnx is not the model that was compiled"):
        dovetail.explain(out, "sigmoid", model=tmp_path / "other.onnx", plugins=installed)


def test_without_its_backend_a_plan_is_still_explained(plugins, file):
    plan = dovetail.plan(file, "npu", plugins=plugins())
    lines = dovetail.explain(plan, "sigmoid")
    assert lines[-1] == "remedies were not tried, because backend 'npu' is not installed"
    assert any("X.rank = 3; allowed: ..2" in line for line in lines)


def test_a_strategy_that_fails_is_named(plugins, file):
    installed = plugins("Failing")
    plan = dovetail.plan(file, "npu", plugins=installed)
    with pytest.raises(DovetailError, match="strategy .failing. of dovetail-choosy, for npu, asked for"):
        dovetail.explain(plan, "sigmoid", plugins=installed)


def test_a_pin_that_a_fix_up_rejects_is_not_called_a_help(plugins, file):
    """Neither where the strategy suggests it itself, nor in the summary of many nodes."""
    installed = plugins("Withdrawing")
    plan = dovetail.plan(file, "npu", plugins=installed)
    lines = dovetail.explain(plan, "add", plugins=installed)
    (line,) = (line for line in lines if "--pin" in line)
    assert line.startswith("tried in vain for npu: --pin add=npu (strategy 'withdrawing' of dovetail-choosy")
    assert "in fix_up, which is pinned" in line
    assert lines[-1] == "none: no change of the request brings it to npu: it would be alone"
    suggestion = "suggested for 1 node, and tried where a node is explained: --pin add=npu"
    assert suggestion in dovetail.explain(plan)
    assert suggestion in dovetail.explain(plan, "*")
    assert suggestion in dovetail.explain(plan, "[ad][ed][td]")


def test_a_suggestion_that_nobody_could_try_says_so(plugins, file):
    installed = plugins("Withdrawing")
    plan = dovetail.plan(file, "npu", plugins=installed)
    file.unlink()
    assert dovetail.explain(plan, "add", plugins=installed)[-2:] == [
        "suggested, and not tried: --pin add=npu",
        "remedies were not tried, because model.onnx was not found: --model FILE",
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pins": ("a=npu/float16",)}, "--pin a=npu/float16"),
        ({"pins": ("it's=npu",)}, "--pin 'it'\"'\"'s=npu'"),
        ({"edits": ("unit-conv=a:before",)}, "--edit unit-conv=a:before"),
        ({"pins": ("a=npu",), "edits": ("unit-conv=a:before",)}, "--pin a=npu --edit unit-conv=a:before"),
        ({"options": {"generation": "2"}, "backend": "npu"}, "--backend npu:generation=2"),
    ],
)
def test_a_remedy_is_what_to_add_to_the_command(change, text):
    assert remedy(**change).text == text


class Counting:
    """Counts the runs of passes by name."""

    dovetail_api = 1

    def __init__(self):
        self.runs = Counter()

    @hookimpl
    def before_pass(self, pass_):
        self.runs[pass_.name] += 1


def long_model(nodes):
    """A chain in which every fifth node is one that the backend leaves alone."""
    operators = ["Sigmoid" if index % 5 == 4 else "Relu" for index in range(nodes)]
    lines = [f"[n{index}] v{index + 1} = {name} (v{index})" for index, name in enumerate(operators)]
    head = f'<ir_version: 10, opset_import: ["": 22]> g (float[2,3,4] v0) => (float[2,3,4] v{nodes})'
    return onnx.parser.parse_model(f"{head} {{ {' '.join(lines)} }}")


def test_pins_are_tried_on_one_prepared_model(plugins, tmp_path):
    """Only another value of an option prepares it again: an opset may depend on it."""
    installed = plugins("Proposing")
    onnx.save(long_model(200), tmp_path / "long.onnx")
    plan = dovetail.plan(tmp_path / "long.onnx", "npu", plugins=installed)
    counting = Counting()
    installed.attach(counting, "counting")
    *in_vain, helps = tried(plan, "n104", installed)
    assert len(in_vain) == 6 and all("tried in vain for npu: --pin" in line for line in in_vain)
    assert helps.startswith("tried: --backend npu:generation=2 brings it to npu, which has 200 nodes")
    assert (counting.runs["normalize"], counting.runs["place"]) == (2, 8)


X3_END = """<ir_version: 8, opset_import: ["": 11]>
g (float[1,8,16,16] x) => (float[1,8,16,16] y) <float[8,8,1,1] w> { [one] a = Conv (x, w) [end] y = {} (a) }"""


@pytest.mark.parametrize(
    ("operator", "march", "offered"),
    [("LeakyRelu", "bernoulli2", False), ("Relu", "bernoulli2", True), ("LeakyRelu", "bayes", True)],
)
def test_a_pin_that_the_vendors_tool_takes_no_wish_for_is_not_offered(operator, march, offered):
    """X3 knows run_on_bpu alone, and that for few operators; on X5 node_info takes all."""
    from dovetail.passes import Request
    from dovetail.plugin import load_plugins
    from dovetail_commands.explain.trials import RemedyTrials
    from dovetail_onnx.opening import open_text

    model = open_text(X3_END.replace("{} (a)", f"{operator} (a)"), "m")
    tried = list(RemedyTrials(model, Request.of(f"bpu-int8:march={march}"), load_plugins(), ["end"]).of("end"))
    (pin,) = [one for one in tried if one.remedy.pins and not one.remedy.edits]
    assert (not pin.why_not) is offered
    assert offered or pin.why_not.startswith("run_on_bpu of the vendor's tool takes only AveragePool")
