"""Each backend of a request may name its strategy, and the options of a strategy stand in the backend's file."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail.planning import Plan
from dovetail_onnx.opening import open_text

STRATEGIES = """
from dataclasses import dataclass
from dovetail.plugin import Claims
from dovetail_placement.strategies.every_node import Autocast

@dataclass(frozen=True)
class First(Autocast):
    '''Claims the first nodes that its backend takes.'''
    number: int = 1
    but: tuple = ()

    def claim(self, view, backend):
        claims = [claim for claim in super().claim(view, backend).claims if claim.node.op_type not in self.but]
        return Claims(claims[: self.number])
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x) => (float[4] y) { [relu] a = Relu (x) [tanh] b = Tanh (a) [neg] y = Neg (b) }"""


@pytest.fixture
def plan(with_backend, float_backend, tmp_path):
    def make(*backends, options="", strategy="first", **request):
        (tmp_path / "first_strategies.py").write_text(STRATEGIES)
        files = [float_backend("one", "Relu, Tanh, Neg", strategy, options),
                 float_backend("two", "Relu, Tanh, Neg")]  # fmt: skip
        plugins = with_backend(*files)
        plugins.registry.strategy("first", "first_strategies:First")
        return dovetail.plan(open_text(MODEL, "model"), backends, plugins=plugins, **request)

    return make


def placed(plan):
    return [node.backend for node in plan.nodes]


def test_the_fields_of_a_dataclass_are_options_of_the_file(plan):
    assert placed(plan("one")) == ["one", "host", "host"]
    assert placed(plan("one", options=", number: 2")) == ["one", "one", "host"]
    assert placed(plan("one", options=", number: 2, but: [Tanh]")) == ["one", "host", "one"]


def test_each_backend_may_have_its_strategy(plan):
    assert placed(plan("one:strategy=autocast")) == ["one", "one", "one"]
    assert placed(plan("one", "two:strategy=first")) == ["one", "two", "host"]
    assert placed(plan("one", "two", strategy="autocast")) == ["one", "one", "one"]


def test_the_plan_says_which_strategy_claimed(plan, tmp_path):
    found = plan("one:strategy=autocast", "two:strategy=first")
    assert [(one.name, one.strategy) for one in found.backends] == [("one", "autocast"), ("two", "first")]
    found.save(tmp_path / "plan.yaml")
    assert Plan.load(tmp_path / "plan.yaml").backends == found.backends


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (", numbr: 2", "inline.yaml:10: strategy 'first' does not read 'numbr' under place (did you mean 'number'?)"),
        (", number: many", "inline.yaml:10: number: 'many' is no option of strategy 'first'"),
        (", number: true", "inline.yaml:10: number: True is no option of strategy 'first'"),
    ],
)
def test_a_mistake_in_an_option_names_file_and_line(plan, options, says):
    with pytest.raises(DovetailError) as raised:
        plan("one", options=options)
    assert says in str(raised.value)


def test_an_unknown_strategy_is_an_error_with_the_near_one(plan):
    with pytest.raises(DovetailError, match="unknown strategy 'frist'.*did you mean 'first'"):
        plan("one:strategy=frist")


def test_a_backend_without_a_strategy_is_an_error_that_says_where_to_name_one(with_backend, float_backend):
    text = float_backend("npu", "Relu").replace("place: {strategy: autocast}\n", "")
    model = open_text('<ir_version: 10, opset_import: ["": 22]> g (float[2] x) => (float[2] y) { y = Relu (x) }', "m")
    with pytest.raises(DovetailError, match="backend 'npu' names no strategy") as raised:
        dovetail.plan(model, "npu", plugins=with_backend(text))
    assert "--backend npu:strategy=NAME" in raised.value.hint
    assert dovetail.plan(model, "npu:strategy=autocast", plugins=with_backend(text)).nodes[0].backend == "npu"


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("plain", "class First:\n    def claim(self, view, backend): ...", "is no dovetail.plugin.Strategy"),
        ("function", "def First(): ...", "is no dovetail.plugin.Strategy"),
        ("idle", "from dovetail.plugin import Strategy\nclass First(Strategy): ...", "has no claim"),
    ],
)
def test_a_strategy_derives_from_its_contract(with_backend, float_backend, tmp_path, module, source, said):
    (tmp_path / f"{module}_strategies.py").write_text(source)
    plugins = with_backend(float_backend("one", "Relu", "first"))
    plugins.registry.strategy("first", f"{module}_strategies:First")
    with pytest.raises(DovetailError, match=f"strategy 'first'.* {said}"):
        dovetail.plan(open_text(MODEL, "model"), ["one"], plugins=plugins)
