"""Damaged files of the vendor's tools: an error that names the file, or a request that can be written down; no defect.

A sample by default, 5,000 with DOVETAIL_SLOW=1.
"""

import json
import os
import random
import re

import dovetail
import pytest
from dovetail.passes import BackendChoice, Request
from dovetail_bpu_int8.vendor.request import changed

from .vendor_files import model_of

YAML = """model_parameters:
  onnx_model: './model.onnx'
  march: "bayes-e"
  node_info: {'act': {'ON': 'BPU', 'InputType': 'int16'}, "two": {InputType0: int8}}
input_parameters:
  input_name: "x"
  input_shape: '1x8x16x16'
  norm_type: 'data_scale'
  scale_value: 0.003921568627451
calibration_parameters:
  run_on_cpu: 'one;mid'
  run_on_bpu: soft
  calibration_type: 'max'
  max_percentile: 0.99999
  per_channel: False
  optimization: 'set_Softmax_input_int8,set_model_output_int8'
compiler_parameters:
  core_num: 1
  optimize_level: 'O3'
"""
QUANT = json.dumps(
    {
        "model_config": {"all_node_type": "int16", "activation": {"calibration_type": ["max", "kl"]},
                         "weight": {"bias_correction": {"num_sample": 1}}},
        "op_config": {"Conv": {"qtype": "int16"}},
        "node_config": {"act": {"qtype": "int16", "ON": "BPU"}, "two": {"input0": "int16"}},
        "subgraph_config": {"head": {"inputs": ["p"], "outputs": ["s"], "qtype": "float16"}},
    },
    indent=1,
)  # fmt: skip
VALUES = (
    "[]", "{}", "null", "3", "-1", "1e400", ".nan", "true", "'x'", '""', "[a, b]", "{a: b}", "[[1]]", "!!map x", "&a b",
    "*a", "'a;b;;'", "1x2", "|\n   text", "99999999999999999999", "ON", "~", "?", "- a", ": b", "\t", "int16", "{",
)  # fmt: skip
COUNT = 5_000 if os.environ.get("DOVETAIL_SLOW") == "1" else 250


def damaged(text, draw):
    """The text with another value, without a line, or with a character too many or too few."""
    lines, kind = text.split("\n"), draw.randrange(4)
    at = draw.randrange(len(lines))
    if kind == 0 and ":" in lines[at]:
        lines[at] = f"{lines[at].partition(':')[0]}: {draw.choice(VALUES)}"
    elif kind == 1:
        del lines[at]
    elif kind == 2 and (words := list(re.finditer(r"[\w.]+", lines[at]))):
        start, end = draw.choice(words).span()
        lines[at] = lines[at][:start] + draw.choice(VALUES) + lines[at][end:]
    else:
        place = draw.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + draw.choice("{}[]:,'\"# ;&*") + lines[at][place + draw.randrange(3) :]
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_damaged_files(tmp_path, form):
    draw, model, refused = random.Random(form), model_of(), 0
    path = tmp_path / f"file.{form}"
    for _ in range(COUNT):
        text = YAML if form == "yaml" else QUANT
        for _ in range(draw.randint(1, 3)):
            text = damaged(text, draw)
        path.write_text(text)
        try:
            if form == "yaml":
                request = changed(Request(), model, hb_yaml=path)
            else:
                request = changed(Request((BackendChoice("bpu-int8", {"march": "nash"}),)), model, quant_config=path)
        except dovetail.DovetailError as error:
            assert error.message.startswith(path.name), text
            refused += 1
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} on:\n{text}") from error
        json.dumps(request.options, allow_nan=False)
    assert 0.2 * COUNT < refused < COUNT
