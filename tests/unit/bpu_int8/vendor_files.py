"""Files of the vendor's tools for tests, made of what each test is about."""

from pathlib import Path

import dovetail
import numpy as np
import onnx_ir as ir
from dovetail_onnx.opening import open_text

WEIGHTS = "<float[8,8,3,3] w, float[8,8,1,1] v, float[8] b>"
RANDOM = ("w", "v", "b")
HEADER = f"(float[1,8,16,16] x) => (float[1,8,16,16] y) {WEIGHTS} "

NET = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [act] r = Relu (a) [mid] m = Conv (r, v)
           [pool] p = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (m) [two] c = Conv (p, v)
           [soft] s = Softmax <axis = 3> (c) [three] d = Conv (s, v) [tail] y = Relu (d) }"""
"""A manual operator between convolutions, a passive one, and an activation at the end."""


def model_of(body=NET, header=HEADER):
    """A model with random numbers for the weights w, v and b."""
    model = open_text(f'<ir_version: 8, opset_import: ["": 11]>\ng {header}{body}', "m")
    rng = np.random.default_rng(1)
    for value in model.graph.initializers.values():
        if value.name in RANDOM:
            array = rng.standard_normal([int(extent) for extent in value.shape]).astype(np.float32) / 3
            value.const_value = ir.tensor(array, name=value.name)
    return model


def yaml(folder, march="bayes-e", model="", calibration="", rest="", inputs=""):
    """A YAML file of hb_mapper; each argument has the lines of a group, beside the march on line 2."""
    groups = {
        "model_parameters": f"march: '{march}'\n{model}",
        "input_parameters": inputs,
        "calibration_parameters": calibration,
    }
    text = ""
    for name, lines in groups.items():
        if lines:
            text += f"{name}:\n" + "".join(f"  {line}\n" for line in lines.strip("\n").split("\n"))
    path = Path(folder, "config.yaml")
    path.write_text(text + rest)
    return path


def asked(plan):
    """What the option has recorded."""
    return plan.request.options.get("bpu", {})


def bpu(plan):
    """The nodes on the BPU."""
    return " ".join(node.name for node in plan.nodes if node.backend == "bpu-int8")


def planned(path, body=NET, **request):
    """The plan of a net for a YAML file."""
    return dovetail.plan(model_of(body), hb_yaml=path, **request)
