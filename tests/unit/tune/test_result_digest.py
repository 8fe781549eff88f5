"""Digests of results: equal where the same is computed in the same place, whatever was asked for."""

import dovetail
import pytest
from dovetail_tune.result_digest import result_digest
from onnx import parser

DIGITS = "examples/digits/digits.onnx"


def digest(backend, **options):
    compiled = dovetail.compile(DIGITS, backend, try_engines=False, **options)
    return result_digest(compiled.model, {one.name: one.engines for one in compiled.backends})


def test_an_option_that_changes_nothing_gives_the_same_result():
    assert digest("cpu-bf16") == digest("cpu-bf16:policies=lean")


@pytest.mark.parametrize("options", [{"high": "conv_1"}, {"pins": "conv_1=host"}])
def test_another_type_or_place_of_one_node_is_another_result(options):
    assert digest("cpu-bf16", **options) != digest("cpu-bf16")


def test_so_is_another_engine_of_a_backend_that_has_nodes():
    model = dovetail.compile(DIGITS, "cpu-bf16", try_engines=False).model
    first, second = (result_digest(model, {"cpu-bf16": engines}) for engines in (("a", "b"), ("b", "a")))
    assert first != second
    assert first == result_digest(model, {"cpu-bf16": ("a", "b"), "cpu-int8": ("c",)})


def test_so_are_another_constant_and_another_attribute():
    text = """<ir_version: 10, opset_import: ["": 22]> g (float[2] x) => (float[2] y)
        <float[2] w = {1, 2}> { a = Add (x, w) y = LeakyRelu <alpha = 0.5> (a) }"""

    def of(changed):
        return result_digest(dovetail.open(parser.parse_model(changed)))

    assert len({of(text), of(text.replace("{1, 2}", "{1, 3}")), of(text.replace("0.5", "0.25"))}) == 3
    assert of(text) == of(text)
