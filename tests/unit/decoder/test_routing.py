"""What one request asks of several models goes to those that have it."""

from dovetail_decoder.routing import requests_of_parts
from dovetail_onnx.opening import open_text

ENCODER = """<ir_version: 8, opset_import: ["": 17]>
encoder (float[N, 4] image) => (float[N, 4] y) { [first] h = Relu(image)  [last] y = Softmax(h) }"""
DECODER = """<ir_version: 8, opset_import: ["": 17]>
decoder (float[N, 4] ids) => (float[N, 4] y) { [head] h = Relu(ids)  [last] y = Sigmoid(h) }"""
MODELS = {"encoder": open_text(ENCODER, "encoder"), "decoder": open_text(DECODER, "decoder")}


def asked(**request):
    return requests_of_parts(MODELS, request)


def test_each_part_gets_what_names_its_nodes_and_inputs():
    found = asked(
        pins="head=host/float32", high=["type:Softmax", "last"], low=("type:Relu",), solver="fixpoint",
        edits=["unit-conv=first:after"], fix_shapes={"image": [1, 4], "ids": [2, 4]}, input_shapes=["ids:2x4"],
    )  # fmt: skip
    assert found["encoder"] == {
        "pins": (), "high": ("type:Softmax", "last"), "low": ("type:Relu",), "solver": "fixpoint",
        "edits": ("unit-conv=first:after",), "fix_shapes": {"image": [1, 4]}, "input_shapes": (),
    }  # fmt: skip
    assert found["decoder"] == {
        "pins": ("head=host/float32",), "high": ("last",), "low": ("type:Relu",), "solver": "fixpoint",
        "edits": (), "fix_shapes": {"ids": [2, 4]}, "input_shapes": ("ids:2x4",),
    }  # fmt: skip


def test_what_no_part_has_goes_to_all_so_that_it_is_an_error():
    found = asked(high=["nowhere"], fix_shapes=["sound:1x4"])
    assert all(one == {"high": ("nowhere",), "fix_shapes": ("sound:1x4",)} for one in found.values())


def test_shapes_of_the_data_are_those_of_every_part():
    assert all(one["fix_shapes"] == "data" for one in asked(fix_shapes="data").values())


def test_a_size_is_that_of_the_folder_and_is_divided_by_the_bytes_of_weights():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, {0}] x) => (float[N, {0}] y) <float[{0}] w = {{{1}}}> {{ y = Mul(x, w) }}"""
    models = {
        name: open_text(text.format(count, ", ".join(["1"] * count)), name) for name, count in (("a", 6), ("b", 2))
    }
    found = requests_of_parts(models, {"max_size": "1KB"})
    assert {name: one["max_size"] for name, one in found.items()} == {"a": ("1KB", 0.75), "b": ("1KB", 0.25)}
    assert requests_of_parts({"a": models["a"]}, {"max_size": "1KB"}) == {"a": {"max_size": "1KB"}}
