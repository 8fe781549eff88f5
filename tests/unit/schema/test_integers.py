"""`integers: refuse`: a table of quantized types or floats takes no nodes that compute in integers."""

import pytest
from dovetail_schemas import RuleJudge

HEAD = "{}ops: {{'{}': {{types: {}}}}}\ntypes: {{q8: {{dtype: int8, scheme: symmetric}}, f: [float16, float32]}}"
NODES = {
    "sums of integers": ("Add", "q8", "(int64[2] x, int64[2] y) => (int64[2] z) { z = Add(x, y) }", False),
    "of 32 bits, too": ("Mul", "f", "(int32[2] x, int32[2] y) => (int32[2] z) { z = Mul(x, y) }", False),
    "moved integers": ("Reshape", "q8", "(int64[4] x, int64[2] s) => (int64[2, 2] z) { z = Reshape(x, s) }", False),
    "joined Booleans": ("Concat", "q8", "(bool[2] x) => (bool[4] z) { z = Concat<axis = 0>(x, x) }", False),
    "a shape is no number": ("Reshape", "q8", "(float[4] x, int64[2] s) => (float[2, 2] z) {z = Reshape(x, s)}", True),
    "an index is none": ("Gather", "f", "(float[4] x, int64[2] i) => (float[2] z) { z = Gather(x, i) }", True),
    "nor a mask": ("Where", "q8", "(bool[2] c, float[2] x) => (float[2] z) { z = Where(c, x, x) }", True),
    "extents of floats": ("Shape", "q8", "(float[4] x) => (int64[1] z) { z = Shape(x) }", True),
    "comparisons give Booleans": ("Less", "f", "(float[4] x) => (bool[4] z) { z = Less(x, x) }", True),
    "ranks": ("ArgMax", "q8", "(float[4] x) => (int64[1] z) { z = ArgMax(x) }", True),
    "integers that the types list": ("Add", "[q8, int64]", "(int64[2] x) => (int64[2] z) { z = Add(x, x) }", True),
    "others than these": ("Add", "[q8, int64]", "(int32[2] x) => (int32[2] z) { z = Add(x, x) }", False),
    "a port that is named": ("Cast", "{input: int64, output: f}",
                             "(int64[2] x) => (float[2] z) { z = Cast<to = 1>(x) }", True),
    "a conversion to integers": ("Cast", "f", "(float[2] x) => (int64[2] z) { z = Cast<to = 7>(x) }", False),
    "an operator without a schema": ("acme::Own", "q8", "(int64[2] x) => (int64[2] z) {z = acme.Own(x)}", True),
    "stored integers": ("DequantizeLinear", "{x: int8, x_scale: float32, y: f}",
                        "(int8[2] x, float s) => (float[2] z) { z = DequantizeLinear(x, s) }", True),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_what_is_an_integer_that_is_computed(name, load, node):
    operator, types, text, stays = NODES[name]

    def verdict(key):
        return RuleJudge(load(HEAD.format(key, operator, types)), opset=22)(node(text, 22))

    refused = verdict("integers: refuse\n")
    assert refused.ok is stays
    if not stays and "int64]" not in types:
        assert verdict("").ok
        assert verdict("integers: accept\n").ok
        assert ", and x takes integers only where types list them" in refused.reasons[0].text
        assert refused.reasons[0].source == "x.yaml:4"


def test_a_rule_without_types_is_meant_too(load, node):
    text = "(int64[2] x) => (int64[2] z) { z = Add(x, x) }"
    assert RuleJudge(load("ops: {Add: {}}"), opset=22)(node(text, 22)).ok
    assert not RuleJudge(load("integers: refuse\nops: {Add: {}}"), opset=22)(node(text, 22)).ok
