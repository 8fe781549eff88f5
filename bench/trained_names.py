"""A small trained decoder: Latin spellings of Arabic names letter by letter, GRU and attention, 1.1 million weights.

pip download --no-deps -d WHEELS arabic-name-romanizer==0.2.0
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from trained_nets.language import ROMANIZER, spelled_names
from trained_nets.wheels import Wheels

CALIBRATING = 12  # names
Feeds = dict[str, np.ndarray]


def write(wheels: Wheels, folder: Path) -> Path:
    """Write the decoder, its weights beside it, with every Gemm as MatMul and Add, which all tools quantize."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load(str(wheels.file(ROMANIZER, "arabic_name_romanizer/resources/decoder.onnx")))
    arrays, nodes = {tensor.name: tensor for tensor in model.graph.initializer}, []
    for node in model.graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        weight, product = arrays[node.input[1]], f"{node.output[0]}_product"
        weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(weight).T), weight.name))
        nodes.append(helper.make_node("MatMul", node.input[:2], [product], node.name))
        nodes.append(helper.make_node("Add", [product, node.input[2]], node.output, f"{node.name}_bias"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path = folder / "model.onnx"
    (folder / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(model, str(path), save_as_external_data=True, location="model.onnx.data")
    return path


def texts(wheels: Wheels) -> tuple[list[Feeds], list[Feeds], Feeds]:
    """Return inputs of the decoder to calibrate on, others to compare on, and one letter."""
    found = spelled_names(wheels, states=True)
    calibrating, judged = (
        [one for stream in part for one in stream] for part in (found[:CALIBRATING], found[CALIBRATING:])
    )
    return calibrating, judged, judged[0]
