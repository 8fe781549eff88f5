"""Terms: the left side of a limit. They mean what Python means by them, and nothing else can be said."""

import pytest
from dovetail_schemas.terms import ABSENT, TermError, Unknown, parse_term, split_keys
from hypothesis import given
from hypothesis import strategies as st

ENV = {"KH": 3, "W": 10, "strides": (1, 2), "X.rank": 4, "H": Unknown("H"), "last": Unknown("last", "region"),
       "gone": ABSENT, "mode": "linear"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("KH", 3), ("KH*W", 30), ("(KH-1)/2", 1.0), ("W // KH", 3), ("W % KH", 1), ("2**KH", 8), ("-KH + 4", 1),
        ("strides", (1, 2)), ("max(strides)", 2), ("max(strides) - min(strides)", 1), ("prod(strides)", 2),
        ("len(strides)", 2), ("min(KH, W, 7)", 3), ("align(W, 8)", 16), ("align(16, 8)", 16), ("X.rank", 4),
        ("mode", "linear"),
    ],
)  # fmt: skip
def test_value(text, value):
    assert parse_term(text)(ENV) == value


def test_a_name_without_value_decides_for_the_whole_term():
    assert parse_term("KH*H")(ENV) == Unknown("H")
    assert parse_term("H + last")(ENV) == Unknown("last", "region")
    assert parse_term("H + gone")(ENV) is ABSENT


@pytest.mark.parametrize("text", ["KH // 0", "KH % (KH - 3)", "strides + strides", "mode * 2", "2 ** -1", "9**9**9**9"])
def test_no_value_for_these_numbers(text):
    with pytest.raises(TermError, match="cannot be computed"):
        parse_term(text)(ENV)


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c", "a[0]", "a < b", "a and b", "not a", "'text'", "f'{a}'", "1.5", "True", "None", "lambda: 1",
        "a if b else c", "(a, b)", "[a]", "a; b", "a = 1", "a := 1", "a @ b", "a | b", "~a", "max(*a)",
        "max(a, key=len)", "max()", "align(a)", "eval(a)", "().x", "a\nb", "", "x" * 301,
        "(" * 200 + "a" + ")" * 200, "\0",
    ],
)  # fmt: skip
def test_what_is_no_term(text):
    with pytest.raises(TermError):
        parse_term(text)


def test_keys_are_split_at_commas_outside_parentheses():
    assert split_keys("KH, KW") == ["KH", "KW"]
    assert split_keys("min(H, W), align(C, 4)") == ["min(H, W)", "align(C, 4)"]


NAMES = {"a": 5, "b": 3, "c": 17}
LEAVES = st.sampled_from([*NAMES, *map(str, range(6))])
TERMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda t: f"-{t}"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=12,
)


@given(TERMS)
def test_a_term_means_what_python_means(text):
    try:
        expected = eval(text, {"__builtins__": {}, "min": min, "max": max}, NAMES)
    except ArithmeticError:
        with pytest.raises(TermError):
            parse_term(text)(NAMES)
        return
    term = parse_term(text)
    assert term(NAMES) == expected
    assert parse_term(term.text) is term
