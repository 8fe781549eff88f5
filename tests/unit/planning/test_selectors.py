"""How a person names nodes."""

import pytest
from dovetail.errors import DovetailError
from dovetail.planning import Placement, parse_pin, select, set_placement
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22, "com.acme": 1]>
g (float[2] x, bool c, int64 n) => (float[2] y, float[2] z) {
  ["layer1.relu"] a = Relu (x)
  ["layer1.add"] b = Add (a, x)
  ["layer2.add"] d = Add (b, x)
  ["type:odd"] e = com.acme.FusedMlp (d)
  [choice] y = If (c) <
    then_branch = t () => (float[2] p) { [neg] p = Neg (e) },
    else_branch = f () => (float[2] q) { [abs] q = Abs (e) }
  >
  [again] z = Loop (n, , x) <
    body = body (int64 i, bool k, float[2] v) => (bool k1, float[2] v1) { [keep] k1 = Identity (k)  v1 = Relu (v) }
  >
}"""


@pytest.fixture
def model():
    model = open_text(TEXT, "test")
    for number, node in enumerate(model.graph):
        set_placement(node, Placement("npu", region=number // 2))
    return model


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("layer1.add", ["layer1.add"]),
        ("b", ["layer1.add"]),  # the value it computes
        ("layer1.*", ["layer1.relu", "layer1.add"]),
        ("*.add", ["layer1.add", "layer2.add"]),
        ("layer?.add", ["layer1.add", "layer2.add"]),
        ("layer[2].*", ["layer2.add"]),
        ("neg", ["neg"]),
        ("choice/then_branch/neg", ["neg"]),
        ("choice/*", ["neg", "abs"]),
        ("again/body/v1", [""]),  # a node without a name
        ("type:Add", ["layer1.add", "layer2.add"]),
        ("type:Relu", ["layer1.relu", ""]),
        ("type:com.acme::FusedMlp", ["type:odd"]),
        ("name:type:odd", ["type:odd"]),
        ("region:1", ["layer2.add", "type:odd"]),
    ],
)
def test_select(model, selector, found):
    assert [node.name or "" for node in select(model, selector)] == found


@pytest.mark.parametrize(
    ("selector", "near"),
    [
        ("layer1.rulu", "'layer1.relu'"),
        ("layer3.add", "'layer2.add'"),
        ("type:Rleu", "'Relu'"),
        ("type:FusedMlp", "'com.acme::FusedMlp'"),
        ("region:7", "`dovetail plan`"),
        ("conv*", "`dovetail plan`"),
        ("LAYER1.RELU", "'layer1.relu'"),
    ],
)
def test_what_matches_nothing_is_an_error_with_near_misses(model, selector, near):
    with pytest.raises(DovetailError, match="no node matches") as caught:
        select(model, selector)
    assert near in caught.value.hint


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("conv=npu", ("conv", "npu", {})),
        ("conv=npu/float16", ("conv", "npu", {"": "float16"})),
        ("a=b=npu/float16", ("a=b", "npu", {"": "float16"})),
        ("type:Conv=host/float32", ("type:Conv", "host", {"": "float32"})),
        ("Conv_3=acme/int8[symmetric,axis=0]", ("Conv_3", "acme", {"": "int8[symmetric,axis=0]"})),
        ("conv_[ab]=npu/int4[asymmetric,axis=1,group=128]",
         ("conv_[ab]", "npu", {"": "int4[asymmetric,axis=1,group=128]"})),
        ("Conv_3=bpu-int8/X:int16[symmetric],Y:int8[symmetric]",
         ("Conv_3", "bpu-int8", {"X": "int16[symmetric]", "Y": "int8[symmetric]"})),
        ("Conv_3=npu/float16, W: int8[symmetric,axis=0]",
         ("Conv_3", "npu", {"": "float16", "W": "int8[symmetric,axis=0]"})),
    ],
)  # fmt: skip
def test_pins(text, parts):
    selector, backend, formats = parse_pin(text)
    assert (selector, backend, {port: str(format_) for port, format_ in formats.items()}) == parts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conv=npu/bfloat61", "pin 'conv=npu/bfloat61': 'bfloat61': there is no element type 'bfloat61' (did you mean"),
        ("conv=npu/X:int8[symetric]", "'symetric' is no scheme (did you mean 'symmetric'"),
        ("conv=npu/int8[symmetric,axes=0]", "'axes=0' is not understood (did you mean 'axis'"),
        ("conv=npu/X:float16,X:float32", "gives port 'X' twice"),
        ("conv=npu/float16,float32", "gives a format for all ports twice"),
        ("conv=npu/X:", "pin 'conv=npu/X:': '' is no format"),
    ],
)
def test_a_pin_whose_formats_do_not_parse(text, says):
    with pytest.raises(DovetailError) as caught:
        parse_pin(text)
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["conv", "conv=", "=npu", "", "conv=/float16", "conv=npu/int8[symmetric,axis=0"])
def test_what_is_no_pin(text):
    with pytest.raises(DovetailError, match="is not a pin"):
        parse_pin(text)
