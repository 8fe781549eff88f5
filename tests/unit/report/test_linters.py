"""What linters say about results."""

import dovetail
import onnx.parser
from dovetail_report.collect.document import document


def findings(compiled, rule):
    return [finding["text"] for finding in document(compiled)["findings"] if finding["rule"] == rule]


def test_a_small_region_and_its_reason(compiled):
    (text,) = findings(compiled, "small-region")
    assert text == (
        "region 1 of host has 1 node, and two borders with 2048 bytes; it is there because: on host, as pin "
        "'soft=host' says"
    )


def test_an_island_of_another_precision_costs_borders():
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {WEIGHTS}> {
      [conv_1] a = Conv (x, w)
      [soft] b = Softmax <axis = 1> (a)
      [conv_2] c = Conv (b, w)
      [conv_3] d = Conv (c, w)
      [relu] y = Relu (d)
    }""".replace("WEIGHTS", ",".join(["0.5"] * 16))
    compiled = dovetail.compile(onnx.parser.parse_model(source), "gpu-fp16", high=["soft"], try_engines=False)
    (text,) = findings(compiled, "island")
    assert text.startswith("float32 island of 1 node costs 2 conversions: 'soft'; most of it because: ")


def test_a_pair_of_casts_that_the_source_model_has():
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[4] x) => (float[4] y) {
      [down] a = Cast <to = 10> (x)
      [up] b = Cast <to = 1> (a)
      [relu] y = Relu (b)
    }"""
    compiled = dovetail.compile(onnx.parser.parse_model(source), "host")
    (text,) = findings(compiled, "inverse-casts")
    assert text == (
        "the Cast pair 'down' and 'up' goes from float to float16 and back; it is there because: "
        "the source model has it"
    )


def test_a_large_value_between_backends():
    source = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1,1024,512] x) => (float[1,1024,512] y) {
      [relu] a = Relu (x)
      [soft] b = Softmax (a)
      [tail] y = Relu (b)
    }"""
    compiled = dovetail.compile(onnx.parser.parse_model(source), "cpu-bf16", pins=["soft=host"])
    texts = findings(compiled, "large-border")
    assert "'a' carries 2.1 MB in every run from cpu-bf16 to host" in texts
