"""Which nodes a request is about, whoever asks."""

import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, PinOrigin, Request
from dovetail.planning import NodeRequest, select, set_origin
from dovetail.plugin import Option, Registry
from dovetail_onnx.opening import open_text
from dovetail_placement.node_requests import NodeRequests

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2] x, bool c) => (float[2] y) {
  ["conv/0"] a = Relu (x)
  [add] b = Add (a, x)
  [split] d = Neg (b)
  [split_tail] e = Abs (d)
  [choice] y = If (c) <
    then_branch = t () => (float[2] p) { [add] p = Neg (e) },
    else_branch = f () => (float[2] q) { [abs] q = Abs (e) }
  >
}"""


@pytest.fixture
def model():
    """A model in which `norm` was folded into `add`, and `split_tail` was split off `split`."""
    model = open_text(TEXT, "test")
    _, add, _, tail, _ = model.graph
    set_origin(add, ("add", "norm"))
    set_origin(tail, ("split",))
    return model


class Asking(Option):
    """An option whose record is what it asks of nodes."""

    commands = ("plan",)

    def add_arguments(self, parser):
        pass

    def node_requests(self, recorded):
        return [NodeRequest(**one) for one in recorded["asked"]]


ASKING = Asking()


def requests_of(model, asked=(), **request):
    registry = Registry()
    registry.option("asking", f"{__name__}:ASKING")
    ctx = Context(Request(**request), registry=registry)
    ctx.asked = dict(asked)
    return ctx.analysis(NodeRequests, model)


def names(nodes):
    return [node.name for node in nodes]


@pytest.mark.parametrize("selector", ["add", "name:add", "a", "*", "c*", "type:Neg", "choice/then_branch/add"])
def test_a_user_names_nodes_of_the_prepared_model(model, selector):
    requests = requests_of(model, pins=[f"{selector}=host"])
    (request,) = requests.pins()
    assert requests.nodes_of(request) == select(model, selector)


def test_a_selector_of_a_user_must_match(model):
    requests = requests_of(model, high=("norm",))
    (request,) = requests.levels()
    with pytest.raises(DovetailError, match="no node matches 'norm'"):
        requests.nodes_of(request)


@pytest.mark.parametrize(
    ("selector", "kind", "found"),
    [
        ("name:norm", "pin", ["add"]),  # folded
        ("split", "pin", ["split"]),  # the node that kept its name
        ("gone", "pin", []),
        ("norm", "avoid", ["add"]),
        ("split", "avoid", ["split", "split_tail"]),  # all that was made of it
        ("add", "avoid", ["add"]),  # of the main graph, because strategies claim these
        ("b", "avoid", ["add"]),
        ("type:Neg", "avoid", ["split"]),
        ("type:Conv", "avoid", []),
    ],
)
def test_a_file_names_nodes_of_the_source_model(model, selector, kind, found):
    request = NodeRequest(kind, selector, "f.yaml:3, key", "npu", names_of="source")
    assert names(requests_of(model).nodes_of(request)) == found


def test_everybody_asks_in_one_form(model):
    """Pins, levels and goals: who asks, for messages, and what."""
    origins = {"norm=npu": PinOrigin("f.yaml:3, on_npu", may_be_declined=True, if_declined="it warns")}
    pins = ("add=host/float32", "norm=npu")
    asked = {"split": ("high", "--min-snr 30"), "add": ("int16", "--ladder")}
    requests = requests_of(model, asked, pins=pins, pin_origins=origins, low=("a",), high=("type:Abs",))
    own, of_file = requests.pins()
    assert [str(own), str(of_file)] == ["pin 'add=host/float32'", "f.yaml:3, on_npu (pin 'norm=npu')"]
    assert (own.may_be_declined, of_file.may_be_declined, of_file.if_declined) == (False, True, "it warns")
    found = [(str(one), one.precision, names(requests.nodes_of(one))) for one in requests.levels()]
    assert found == [
        ("--low a", "low", ["conv/0"]),
        ("--high type:Abs", "high", ["split_tail", "abs"]),
        ("--min-snr 30", "high", ["split"]),
    ]
    (element,) = requests.of_backend("npu")
    assert (element.precision, names(requests.nodes_of(element))) == ("int16", ["add"])


def test_options_ask_too(model):
    """Each request reaches those who obey it: placement, typing, the strategy of its backend."""
    common = {"selector": "add", "asked_by": "--gently"}
    asked = [
        {**common, "kind": "pin", "backend": "npu"},
        {**common, "kind": "precision", "precision": "high"},
        {**common, "kind": "precision", "precision": "int16", "backend": "npu"},
        {**common, "kind": "avoid", "backend": "other"},
    ]
    requests = requests_of(model, options={"asking": {"asked": asked}, "gone": {}}, pins=("a=host",))
    assert [str(request) for request in requests.pins()] == ["--gently", "pin 'a=host'"]
    assert [request.precision for request in requests.levels()] == ["high"]
    assert [request.precision for request in requests.of_backend("npu")] == ["int16"]
    assert [request.kind for request in requests.of_backend("other")] == ["avoid"]


def test_an_option_that_fails_is_named(model):
    requests = requests_of(model, options={"asking": {}})
    with pytest.raises(DovetailError, match="option 'asking' of this program failed: KeyError: 'asked'"):
        list(requests.pins())
