"""Opening and saving in every form gives back the same model."""

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.ir import FLOATS, promote
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from hypothesis import given
from hypothesis import strategies as st

from .models import models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def comparable(path):
    """The model with its weights inside, apart from the order of initializers."""
    proto = onnx.load(path)
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in proto.graph.initializer}
    del proto.graph.initializer[:]
    return proto.SerializeToString(deterministic=True), weights


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
@given(proto=models(), large=st.booleans())
def test_open_save_open(folder, external, proto, large):
    if large:  # weights that are left on disk
        big = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(big, "big"))
    first, second, third = (folder / f"{name}_{external}.onnx" for name in ("first", "second", "third"))
    first.write_bytes(proto.SerializeToString())
    save_model(open_model(first), second, external=external)
    save_model(open_model(second), third)
    assert comparable(second) == comparable(first)
    assert comparable(third) == comparable(first)
    model = open_model(third)
    model.graph  # noqa: B018 - builds the graph, so that it is written from there
    save_model(model, second, external=external)
    assert comparable(second)[1] == comparable(first)[1]
    assert str(open_model(second)) == str(open_model(first))


@given(proto=models())
def test_text_is_read_back_as_it_was_printed(folder, proto):
    path, text = folder / "printed.onnx", folder / "printed.onnxtxt"
    path.write_bytes(proto.SerializeToString())
    printed = str(open_model(path))
    assert str(open_model(path)) == printed
    text.write_text(printed)
    assert nodes(open_model(text)) == nodes(open_model(path))
    save_model(open_model(text), path)
    onnx.checker.check_model(onnx.load(path))


def nodes(model):
    return [
        (node.op_type, node.name, [value and value.name for value in node.inputs], [v.name for v in node.outputs])
        for node in model.nodes()
    ]


kinds = st.sampled_from(sorted(FLOATS))


@given(kinds, kinds, kinds)
def test_promotion_is_a_join_of_a_lattice(a, b, c):
    assert promote(a, b) == promote(b, a)
    assert promote(promote(a, b), c) == promote(a, promote(b, c)) == promote(a, b, c)
    assert promote(a, a) == a
    assert {promote(a, b)} <= FLOATS[a] & FLOATS[b]


@pytest.mark.parametrize(
    ("types", "result"),
    [
        (["float16", "bfloat16"], "float32"),
        (["bfloat16", "float32"], "float32"),
        (["float16", "float64"], "float64"),
        (["bfloat16"], "bfloat16"),
    ],
)
def test_promotion(types, result):
    assert promote(*types) == result
