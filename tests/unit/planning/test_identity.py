"""Who a node is, however its values are called."""

import re

import pytest
from dovetail.planning import identity, structural_keys, walk
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,4] x, bool c) => (float[2,4] y) <float[4] k = {1, 2, 3, 4}> {
  [n1] v1 = Relu (x)
  [n2] v2 = Add (v1, k)
  [n3] v3 = Add (v1, k)
  [n4] v4 = LeakyRelu <alpha = 0.5> (v2)
  [n5] v5 = LeakyRelu <alpha = 0.25> (v2)
  [n6] y = If (c) <
    then_branch = t () => (float[2,4] v7) { [n7] v7 = Neg (v4) },
    else_branch = e () => (float[2,4] v8) { [n8] v8 = Sub (v5, v3) }
  >
}"""


def keys(text):
    model = open_text(text, "test")
    found = structural_keys(model)
    return [found[id(node)] for _, node in walk(model)]


def test_identities_are_the_first_outputs_with_their_path():
    identities = [identity(path, node) for path, node in walk(open_text(TEXT, "test"))]
    assert identities == ["v1", "v2", "v3", "v4", "v5", "y", "n6/then_branch/v7", "n6/else_branch/v8"]


def test_keys_are_unique():
    assert len(set(keys(TEXT))) == 8


def test_keys_survive_another_name_for_everything():
    renamed = re.sub(r"\b[vn](\d)\b", r"other_\1_name", TEXT).replace(" k", " weight").replace("(x", "(in").replace(
        "float[2,4] x", "float[2,4] in"
    )  # fmt: skip
    assert "v1" not in renamed
    assert keys(renamed) == keys(TEXT)


def test_keys_survive_an_insertion_elsewhere():
    inserted = TEXT.replace("  [n1]", "  [new] unread = Exp (x)\n  [n1]")
    assert keys(inserted)[1:] == keys(TEXT)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("alpha = 0.5", "alpha = 0.75", ["n1", "n2", "n3", "n5"]),
        ("= Relu", "= Tanh", []),
        ("float[2,4] x", "float[3,4] x", []),
    ],
)
def test_keys_tell_apart_what_differs(old, new, same):
    before, after = keys(TEXT), keys(TEXT.replace(old, new, 1))
    names = ["n1", "n2", "n3", "n4", "n5"]
    assert [name for name, one, other in zip(names, before, after) if one == other] == same
