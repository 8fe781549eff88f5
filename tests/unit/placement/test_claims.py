"""What a strategy claims is checked before anything is built on it, and a mistake names the strategy."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

STRATEGIES = """
from dovetail.plugin import Claim, Claims, Strategy

class Twice(Strategy):
    def claim(self, view, backend):
        nodes = [part for node in view.nodes() for part in view.whole(node)]
        return Claims([Claim(node) for node in (*nodes, nodes[0])])

class Greedy(Strategy):
    def claim(self, view, backend):
        return Claims([Claim(part) for node in view.model.graph for part in view.whole(node)])

class Torn(Strategy):
    def claim(self, view, backend):
        return Claims([Claim(node) for node in view.nodes()])

class Broken(Strategy):
    def claim(self, view, backend):
        return view.nodes_of_the_model()

class Leaving(Strategy):
    def claim(self, view, backend):
        raise SystemExit(3)

class Listed(Strategy):
    def claim(self, view, backend):
        return [Claim(node) for node in view.nodes()]

class Textual(Strategy):
    def claim(self, view, backend):
        return Claims([Claim(node, {"X": ("float16",)}) for node in view.nodes()])

class Foreign(Strategy):
    def claim(self, view, backend):
        import onnx_ir
        return Claims([Claim(onnx_ir.node("Relu", [None], name="invented"))])
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) {
  [first] a = Relu (x)
  [choice] y = If (c) <
    then_branch = t () => (float[4] t0) { [inner] t0 = Tanh (a) },
    else_branch = e () => (float[4] e0) { [other] e0 = Add (a, a) }
  >
}"""


@pytest.fixture
def plan(with_backend, tmp_path, float_backend):
    def make(strategy, **request):
        plugins = with_backend(float_backend("careless", "Add, Relu, Tanh, If", strategy.lower()))
        (tmp_path / "careless_strategies.py").write_text(STRATEGIES)
        with plugins.registry.on_behalf_of("dovetail-careless"):
            plugins.registry.strategy(strategy.lower(), f"careless_strategies:{strategy}")
        return dovetail.plan(open_text(MODEL, "model"), "careless", plugins=plugins, **request)

    return make


@pytest.mark.parametrize(
    ("strategy", "request_", "says"),
    [
        ("Twice", {}, "claims 'first' (Relu) twice"),
        ("Greedy", {"pins": "first=host"}, "claims 'first' (Relu), which was not offered to it"),
        ("Torn", {}, "claims 'choice' without 'inner', although one engine runs 'choice' (If) whole"),
        ("Broken", {}, "failed: AttributeError: 'BackendView' object has no attribute 'nodes_of_the_model'"),
        ("Leaving", {}, "failed: SystemExit: 3"),
        ("Listed", {}, "returns list"),
        ("Textual", {}, "claims 'first' (Relu) with 'float16' for port 'X', which is no format"),
        ("Foreign", {}, "claims 'invented' (Relu), which is not a node of the model"),
    ],
)
def test_a_mistake_of_a_strategy_is_one_clear_message(plan, strategy, request_, says):
    with pytest.raises(DovetailError) as raised:
        plan(strategy, **request_)
    assert says in str(raised.value)
    assert f"strategy '{strategy.lower()}' of dovetail-careless, for careless," in str(raised.value)
    assert raised.value.hint


def test_a_strategy_that_claims_what_it_was_offered_is_taken(plan):
    assert {node.backend for node in plan("Greedy").nodes} == {"careless"}
