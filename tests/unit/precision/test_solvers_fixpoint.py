"""The rules of `fixpoint`: low until something forbids it, and back where low takes more joins."""

import pytest

LOW, HIGH = "float16", "float32"
HEAD = "g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8,8] u> "

CASES = {
    "what leads to a product starts low": (
        HEAD + "{ a = Neg (x)  b = Tanh (a)  y = MatMul (b, w) }",
        {"a": LOW, "b": LOW, "y": LOW},
    ),
    "a policy of fp32 forbids it": (
        HEAD + "{ a = MatMul (x, w)  b = Exp (a)  y = MatMul (b, u) }",
        {"a": LOW, "b": HIGH, "y": LOW},
    ),
    "float64 is never lowered": (
        """g (double[4,8] x) => (double[4,8] y) <double[8,8] w> {
             a = MatMul (x, w)  b = Cast <to = 1> (a)  c = Neg (b)  y = Cast <to = 11> (c) }""",
        {"a": "float64", "y": HIGH},
    ),
    "what the model has in float16 stays": (
        "g (float16[4,8] x) => (float16[4,8] y) { a = Exp (x)  y = Neg (a) }",
        {"a": LOW, "y": LOW},
    ),
    "an orphan between high neighbors goes back": (
        HEAD + "{ a = Exp (x)  b = Neg (a)  y = Exp (b) }",
        {"b": HIGH},
    ),
    "an orphan between inputs and outputs goes back": (
        HEAD + "{ y = Neg (x) }",
        {"y": HIGH},
    ),
    "what goes back takes others with it": (
        HEAD + "{ a = Exp (x)  c = Log (x)  d = Add (a, c)  e = Neg (d)  y = Log (e) }",
        {"d": HIGH, "e": HIGH},
    ),
    "a component goes back as a whole": (
        HEAD + "{ a = Exp (x)  b = Tanh (a)  c = Neg (b)  y = Exp (c) }",
        {"b": HIGH, "c": HIGH},
    ),
    "a component with as many joins either way stays low": (
        HEAD + "{ a = Exp (x)  b = Tanh (a)  c = Neg (b)  y = MatMul (c, w) }",
        {"b": LOW, "c": LOW, "y": LOW},
    ),
    "as many joins either way stay low": (
        HEAD + "{ a = Exp (x)  b = Neg (a)  y = MatMul (b, w) }",
        {"b": LOW, "y": LOW},
    ),
    "what is converted anyway costs nothing more": (
        HEAD + "{ a = Exp (x)  b = Neg (a)  c = MatMul (a, w)  y = Add (b, c) }",
        {"b": LOW, "y": LOW},
    ),
    "a cast reads what arrives": (
        """g (float[4,8] x) => (float[4,8] y, int32[4,8] i, int32[4,8] j) <float[8,8] w> {
             y = MatMul (x, w)  i = Cast <to = 6> (y)  j = Cast <to = 6> (x) }""",
        {"y": LOW, "i": LOW, "j": HIGH},
    ),
    "a loop carries the type of the model": (
        """g (float[4,8] x, int64 n) => (float[4,8] y) <float[8,8] w> { a = MatMul (x, w)  y = Loop (n, , a) <
             body = b (int64 i, bool go, float[4,8] v) => (bool on, float[4,8] r) {
               on = Identity (go)  s = Neg (v)  t = MatMul (s, w)  r = Neg (t) }> }""",
        {"a": LOW, "s": LOW, "t": LOW, "r": LOW},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_types(solved, text, expected):
    _, types = solved("fixpoint", text)
    assert {name: types[name] for name in expected} == expected


def test_without_kept_types_there_is_nothing_to_go_back_for(solved):
    text = "g (float[4,8] x) => (float[4,8] y, float[4,8] z) <float[8,8] w> { y = Neg (x)  z = MatMul (x, w) }"
    assert solved("fixpoint", text)[1]["y"] == HIGH
    assert solved("fixpoint", text, keep_io_types=False)[1]["y"] == LOW


@pytest.mark.parametrize(
    ("large", "constant", "last"), [("Add (a, bias)", "bias", "missed"), ("MatMul (a, k)", "k", "passed")]
)
def test_a_constant_that_is_too_large_forbids_it(typed, large, constant, last):
    """A sum is as large as its constant, so its reader stays high, too; how large a product is depends on both."""
    text = f"""g (float[4,2] x) => (float[4,2] y)
               <float[2,2] w, float[2,2] v, float[2,2] k = {{1, 0, 0, 70000}}, float[2] bias = {{1, 70000}}> {{
                 [first] a = MatMul (x, w)  [large] c = {large}  [last] y = MatMul (c, v) }}"""
    remarks, joins = typed("fixpoint", text)
    assert remarks["large"].kind == "missed"
    assert remarks["large"].why == f"float32: its constant '{constant}' reaches 7e+04, beyond the 65504 of float16"
    assert (remarks["first"].kind, remarks["last"].kind) == ("passed", last)
    assert joins == [("x", LOW), ("a", HIGH), *([("c", LOW), ("y", HIGH)] if last == "passed" else [])]


def test_remarks_name_what_forced_it(typed):
    text = """g (float[4,8] x) => (float[4,8] y) {
                [one] a = Exp (x)  [other] b = Log (x)  [both] c = Add (a, b)
                [next] d = Neg (c)  [end] y = Log (d) }"""
    remarks, joins = typed("fixpoint", text)
    assert joins == []
    assert remarks["both"].because == ("one", "other")
    assert remarks["both"].why == "float32: float16 here would take one more join"
    assert remarks["next"].because == ("both", "end")
    assert remarks["next"].why == "float32: float16 here would take 2 more joins"
    assert remarks["next"].source.startswith("fp16.yaml:")


def test_what_is_low_needs_no_reason(typed):
    remarks, _ = typed("fixpoint", HEAD + "{ [m] a = MatMul (x, w)  [n] b = Neg (a)  [o] y = MatMul (b, u) }")
    assert (remarks["n"].kind, remarks["n"].why, remarks["n"].because) == ("passed", "float16: nothing forbids it", ())
    assert remarks["m"].why == "computed in float16"
