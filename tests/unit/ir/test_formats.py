"""Formats: their text, that equal ones are one object, and where they meet."""

from __future__ import annotations

import copy
import pickle

import pytest
from dovetail.errors import UsageError
from dovetail.ir import FLOATS, SCHEMES, Format
from hypothesis import given
from hypothesis import strategies as st

formats = st.one_of(
    st.sampled_from(["bfloat16", "float16", "float32", "int64", "bool", "float8e4m3fn"]),
    st.builds(
        lambda element, scheme, granularity, expressed: f"{element}[{scheme}{granularity}{expressed}]",
        st.sampled_from(["int8", "uint8", "int4", "int16", "int32", "float8e4m3fn"]),
        st.sampled_from(SCHEMES),
        st.sampled_from(["", ",axis=0", ",axis=-1", ",axis=1,group=128"]),
        st.sampled_from(["", ",expressed=bfloat16", ",expressed=float16"]),
    ),
).map(Format.of)


@given(formats)
def test_text_reads_back_and_equal_formats_are_one_object(format_):
    assert Format.of(str(format_)) is format_
    assert copy.copy(format_) is format_ and copy.deepcopy([format_])[0] is format_
    assert pickle.loads(pickle.dumps(format_)) is format_
    assert eval(repr(format_), {"Format": Format}) is format_


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("int8[ symmetric , axis=0 ]", "int8[symmetric,axis=0]"),
        ("int4[asymmetric,group=128,axis=1]", "int4[asymmetric,axis=1,group=128]"),
        ("int8[symmetric,expressed=float32]", "int8[symmetric]"),
        ("uint8[asymmetric,expressed=bfloat16]", "uint8[asymmetric,expressed=bfloat16]"),
        ("bfloat16", "bfloat16"),
    ],
)
def test_one_spelling_each(written, canonical):
    assert str(Format.of(written)) == canonical and Format.of(written) is Format.of(canonical)


def test_what_a_format_says():
    weights = Format.of("int4[asymmetric,axis=1,group=128,expressed=bfloat16]")
    assert (weights.element, weights.scheme, weights.axis, weights.group) == ("int4", "asymmetric", 1, 128)
    assert weights.quantized and weights.computes_in == "bfloat16" and not weights.is_float
    plain = Format.of("int64")
    assert not plain.quantized and plain.computes_in == "int64" and plain.axis is None


@given(st.lists(formats.filter(lambda f: f.computes_in in FLOATS), min_size=1, max_size=4))
def test_a_join_holds_what_all_express_whatever_their_order(parts):
    joined = parts[0].join(*parts[1:])
    assert joined is parts[-1].join(*parts[-2::-1]) if len(parts) > 1 else joined is parts[0]
    assert all(joined.computes_in in FLOATS[part.computes_in] for part in parts)


@pytest.mark.parametrize(
    ("parts", "meet"),
    [
        (["float16", "bfloat16"], "float32"),
        (["int8[symmetric]", "bfloat16"], "float32"),
        (["int8[symmetric,expressed=bfloat16]", "bfloat16"], "bfloat16"),
        (["int8[symmetric]", "int8[symmetric,axis=0]"], "float32"),
        (["int8[symmetric]", "int8[symmetric]"], "int8[symmetric]"),
    ],
)
def test_where_formats_meet(parts, meet):
    first, *others = map(Format.of, parts)
    assert first.join(*others) is Format.of(meet)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bfloat61", "no element type 'bfloat61' (did you mean 'bfloat16'"),
        ("int8[symetric]", "'symetric' is no scheme (did you mean 'symmetric'"),
        ("int8[]", "'' is no scheme"),
        ("int8[symmetric,axes=0]", "'axes=0' is not understood (did you mean 'axis'?)"),
        ("int8[symmetric,axis]", "'axis' is not understood"),
        ("int8[symmetric,axis=0,axis=1]", "'axis=1' is not understood"),
        ("int8[symmetric,axis=x]", "axis=x is no axis"),
        ("int8[symmetric,axis=0,group=0]", "group=0 is no group"),
        ("int8[symmetric,group=4]", "a group needs an axis"),
        ("int8[symmetric,expressed=int32]", "'int32' is no float type"),
        ("float32[symmetric]", "float32 is not quantized"),
        ("int8[symmetric", "is no format"),
        ("", "is no format"),
    ],
)
def test_what_is_no_format(text, message):
    with pytest.raises(UsageError) as caught:
        Format.of(text)
    assert message in caught.value.message


def test_formats_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot be changed"):
        Format.of("int8[symmetric]").axis = 3
