"""A strategy reconsiders its claims once those of all backends are known: it withdraws and narrows."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

STRATEGIES = """
from dataclasses import replace
from dovetail.plugin import Claim, Claims, claim_of
from dovetail_placement.strategies.every_node import Autocast

class Passive(Autocast):
    '''Relu and MaxPool only between nodes of this backend, as accelerators with roles have it.'''
    def fix_up(self, view, claims):
        return Claims([claim for claim in claims.claims if claim.node.op_type == "Conv" or self.anchored(view, claim)])

    def anchored(self, view, claim):
        beside = [*view.producers(claim.node), *view.readers(claim.node)]
        here = [view.claimed(other.node) for other in beside]
        return len(beside) == 2 and all(found is not None and found[0] == view.backend.name for found in here)

class Narrowing(Autocast):
    def fix_up(self, view, claims):
        narrow = lambda claim: {port: kinds[-1:] for port, kinds in claim.ports.items()}
        return Claims([replace(claim, ports=narrow(claim)) if claim.node.op_type == "Relu" else claim
                       for claim in claims.claims])

class Torn(Autocast):
    '''Withdraws control flow and narrows what is in its bodies, in one go.'''
    def fix_up(self, view, claims):
        narrow = lambda claim: {port: kinds[-1:] for port, kinds in claim.ports.items()}
        return Claims([replace(claim, ports=narrow(claim)) for claim in claims.claims if claim.node.op_type != "If"])

class Widening(Autocast):
    def fix_up(self, view, claims):
        wider = lambda claim: {**claim.ports, "X": (*claim.ports["X"], "int8")}
        return Claims([replace(claim, ports=wider(claim)) for claim in claims.claims])

class Adding(Autocast):
    def fix_up(self, view, claims):
        return Claims([*claims.claims, *(Claim(node) for node in view.model.graph if view.claimed(node) is None)])

class Oscillating(Autocast):
    withdrawn = []
    def fix_up(self, view, claims):
        self.withdrawn, again = [claims.claims[-1]], self.withdrawn
        return Claims([*claims.claims[:-1], *again])

class Twice(Autocast):
    def fix_up(self, view, claims):
        return Claims([*claims.claims, claims.claims[0]])

class Unpinning(Autocast):
    def fix_up(self, view, claims):
        return Claims([])

class Failing(Autocast):
    def fix_up(self, view, claims):
        raise SystemExit(4)

class Careless(Autocast):
    def fix_up(self, view, claims):
        return claims.claims
"""

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,3,8,8] x) => (float[1,3,8,8] y) <float[3,3,1,1] w = {0,0,0,0,0,0,0,0,0}> {
  [head] a = Relu (x)
  [one] b = Conv (a, w)
  [between] c = Relu (b)
  [two] d = Conv (c, w)
  [tail1] e = Relu (d)
  [tail2] f = Relu (e)
  [end] y = Sigmoid (f)
}"""


@pytest.fixture
def plan(with_backend, float_backend, tmp_path):
    def make(strategy, other="", **request):
        name = strategy.lower()
        files = [float_backend("npu", "Conv, Relu", name)]
        if other:
            files.append(float_backend("second", other))
        plugins = with_backend(*files)
        (tmp_path / "fixing_strategies.py").write_text(STRATEGIES)
        with plugins.registry.on_behalf_of("dovetail-fixing"):
            plugins.registry.strategy(name, f"fixing_strategies:{strategy}")
        backends = ["npu", "second"] if other else ["npu"]
        return dovetail.plan(open_text(MODEL, "model"), backends, plugins=plugins, **request)

    return make


def placed(plan):
    return {node.name: node.backend for node in plan.nodes}


def test_what_is_withdrawn_takes_along_what_depended_on_it(plan):
    """tail1 goes because tail2 did, which no reader here has."""
    on_npu = [name for name, backend in placed(plan("Passive")).items() if backend == "npu"]
    assert on_npu == ["one", "between", "two"]


def test_what_is_withdrawn_is_offered_to_the_backends_behind(plan):
    where = placed(plan("Passive", other="Relu"))
    assert where["tail1"] == where["tail2"] == where["head"] == "second"
    assert where["between"] == "npu"


def test_a_claim_can_be_narrowed_to_fewer_types(plan):
    types = {node.name: str(node.precision) for node in plan("Narrowing").nodes}
    assert types["between"] == types["tail1"] == "float32"
    assert types["one"] == types["two"] == "float16"


def test_control_flow_takes_its_bodies_along_even_if_they_are_narrowed(with_backend, tmp_path, float_backend):
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (bool b, float[2] x) => (float[2] y) {
      [choice] a = If (b) <then_branch = t () => (float[2] p) { [inner] p = Relu (x) },
                           else_branch = e () => (float[2] q) { [other] q = Relu (x) }>
      [after] y = Relu (a)
    }"""
    plugins = with_backend(float_backend("npu", "If, Relu", "torn"))
    (tmp_path / "fixing_strategies.py").write_text(STRATEGIES)
    plugins.registry.strategy("torn", "fixing_strategies:Torn")
    where = placed(dovetail.plan(open_text(text, "model"), ["npu"], plugins=plugins))
    assert where == {"choice": "host", "inner": "host", "other": "host", "after": "npu"}


def test_pins_are_claims_that_strategies_see(plan):
    """Pinned to the host, `between` anchors nothing; pinned to the backend, tail2 anchors tail1."""
    assert placed(plan("Passive", pins="one=host"))["between"] == "host"
    assert placed(plan("Narrowing", pins="between=npu/float16"))["between"] == "npu"


@pytest.mark.parametrize(
    ("strategy", "request_", "says"),
    [
        ("Adding", {}, "claims 'end' (Sigmoid) in fix_up, which is not its own: nobody has it"),
        ("Oscillating", {}, "in fix_up, which is not its own"),
        ("Twice", {}, "returns 'head' (Relu) twice from fix_up"),
        ("Unpinning", {"pins": "one=npu"}, "changes the claim on 'one' in fix_up, which is pinned: pin 'one=npu'"),
        ("Failing", {}, "failed in fix_up: SystemExit: 4"),
        ("Careless", {}, "returns list from fix_up"),
        ("Widening", {}, "widens its claim on 'head' in fix_up: X may be"),
    ],
)
def test_a_mistake_of_a_fix_up_is_one_clear_message(plan, strategy, request_, says):
    with pytest.raises(DovetailError) as raised:
        plan(strategy, **request_)
    assert says in str(raised.value)
    assert f"strategy '{strategy.lower()}' of dovetail-fixing, for npu," in str(raised.value)
