"""Quantizers of weights that run in environments of their own: NNCF, Olive and AIMET, on the same data as ours.

NNCF gives a file for OpenVINO. Olive and AIMET give float32 files whose weights are the numbers that their integers
stand for: Olive's own GPTQ (`olive.passes.pytorch.gptq.Gptq`) is called product by product with what one run of the
float model reads, since its walk through a model knows classes of transformers alone; AIMET's quantization simulation
has scales per block by range (`minmax`) or by its sequential search on data (`seqmse`).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
from weight_only import Feeds

_GIVEN = """
import sys, json, numpy as np, onnx
source, out, data, group, method = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
feeds = np.load(data, allow_pickle=True)["feeds"].tolist()
"""
_NNCF = (
    _GIVEN
    + """
import nncf, openvino as ov
settings = {"awq": {"awq": True}, "scales": {"awq": True, "scale_estimation": True}, "gptq": {"gptq": True}}[method]
made = nncf.compress_weights(
    ov.Core().read_model(source), mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=group, ratio=1.0, all_layers=True,
    ignored_scope=nncf.IgnoredScope(types=["Gather"], validate=False), dataset=nncf.Dataset(feeds), **settings,
)
ov.save_model(made, out + "/model.xml", compress_to_fp16=False)
"""
)
_PRODUCTS = """
from onnx import numpy_helper
model = onnx.load(source)
arrays = {tensor.name: tensor for tensor in model.graph.initializer}
products = [
    node for node in model.graph.node
    if node.op_type in ("MatMul", "Gemm") and node.input[1] in arrays and len(arrays[node.input[1]].dims) == 2
]
turned = {node.name for node in products if any(one.name == "transB" and one.i for one in node.attribute)}
inputs = {node.name: arrays[node.input[1]].dims[1 if node.name in turned else 0] for node in products}
products = [node for node in products if inputs[node.name] % group == 0]

def finish():
    for node in products:
        arrays[node.input[1]].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(made[node.name]), node.input[1]))
    onnx.save(model, out + "/model.onnx", save_as_external_data=True, location="model.onnx.data")
    json.dump([node.input[1] for node in products], open(out + "/quantized.json", "w"))
"""
_OLIVE = (
    _GIVEN
    + _PRODUCTS
    + """
import types, onnxruntime, torch
from olive.common.quant.utils import WeightQuantizer
from olive.passes.pytorch.gptq import Gptq
assert method == "gptq"
read = list(dict.fromkeys(node.input[0] for node in products))
shown = onnx.ModelProto()
shown.CopyFrom(model)
shown.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in read)
onnx.save(shown, out + "/shown.onnx", save_as_external_data=True, location="shown.data")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(out + "/shown.onnx", options)
seen = {name: torch.nn.Linear(1, 1) for name in read}
for name, module in seen.items():
    node = next(node for node in products if node.input[0] == name)
    module.in_features, module.quant_info = inputs[node.name], types.SimpleNamespace(data=None)
given = {one.name for one in session.get_inputs()}
for sample in feeds:
    for name, array in zip(read, session.run(read, {key: array for key, array in sample.items() if key in given})):
        Gptq.accumulate_hessian(seen[name], (torch.from_numpy(array),), None)
made = {}
with torch.no_grad():
    for node in products:
        weight = numpy_helper.to_array(arrays[node.input[1]])
        weight = weight if node.name in turned else weight.T
        module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        module.weight.data = torch.from_numpy(weight.copy())
        quantizer = WeightQuantizer(bits=4, symmetric=False, group_size=group)
        known = seen[node.input[0]].quant_info.data
        module.quant_info = types.SimpleNamespace(quantizer=quantizer, data={"H": known["H"].clone(), "N": known["N"]})
        Gptq.process_module(module)
        result = module.weight.data.numpy()
        made[node.name] = result if node.name in turned else result.T
finish()
"""
)
_AIMET = (
    _GIVEN
    + _PRODUCTS
    + """
from aimet_onnx import apply_seq_mse, quantsim
for node in model.graph.node:  # its graph of operators has names alone
    node.name = node.name or "node_" + node.output[0]
copy = onnx.ModelProto()
copy.CopyFrom(model)
sim = quantsim.QuantizationSimModel(copy, param_type="int4", activation_type="int16", dummy_input=feeds[0])
wanted = {node.input[1] for node in products}
quantsim.set_blockwise_quantization_for_weights(sim, ("MatMul", "Gemm"), 4, False, group)
for name, quantizer in sim.qc_quantize_op_dict.items():
    quantizer.enabled = name in wanted
if method == "seqmse":
    apply_seq_mse(sim, feeds)
else:
    sim.compute_encodings(feeds[:1])
made = {}
for node in products:
    quantizer = sim.qc_quantize_op_dict[node.input[1]]
    found = quantizer.export_encodings("2.0.0")
    scale, zero = np.array(found["y_scale"]), np.array(found.get("y_zero_point", 0))
    weight = numpy_helper.to_array(arrays[node.input[1]])
    low, high = (0, 15) if found["output_dtype"].startswith("u") else (-8, 7)
    scale, zero = (np.repeat(np.broadcast_to(part, scale.shape), group, axis=found["axis"]) for part in (scale, zero))
    made[node.name] = ((np.clip(np.rint(weight / scale) + zero, low, high) - zero) * scale).astype(np.float32)
finish()
"""
)
SCRIPTS = {"nncf": (_NNCF, "model.xml"), "olive": (_OLIVE, "model.onnx"), "aimet": (_AIMET, "model.onnx")}
METHODS = {
    "nncf": {"awq": "AWQ", "scales": "AWQ and scale estimation", "gptq": "GPTQ"},
    "olive": {"gptq": "GPTQ"},
    "aimet": {"minmax": "ranges", "seqmse": "sequential MSE"},
}


def of_peer(source: Path, out: Path, samples: list[Feeds], tool: str, python: str, block: int, method: str) -> Path:
    """Quantize to uint4 with a tool of another environment.

    Args:
        source: The float32 file.
        out: The folder of the result.
        samples: The data.
        tool: A key of `METHODS`.
        python: The interpreter of its environment.
        block: Size of the blocks.
        method: A key of `METHODS[tool]`.

    Raises:
        RuntimeError: The tool fails; the message is the last line that it wrote.
    """
    out.mkdir(parents=True, exist_ok=True)
    names = {one.name for one in onnx.load(str(source), load_external_data=False).graph.input}
    given = [{name: array for name, array in feeds.items() if name in names} for feeds in samples]
    np.savez(out / "data.npz", feeds=np.array(given, dtype=object))
    script, result = SCRIPTS[tool]
    words = [python, "-c", script, source, out, out / "data.npz", block, method]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], env=environment, capture_output=True, text=True, errors="replace")
    (out / "log.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise RuntimeError(lines[-1])
    return out / result


def size_of_integers(path: Path, block: int, bits: int = 4) -> int | None:
    """Return the bytes that the weights of a float32 file of `of_peer` take as integers; None for other files.

    Those that are quantized have scales in float16 and zero points in their own bits, one per block.
    """
    quantized = path.with_name("quantized.json")
    if not quantized.exists():
        return None
    names, size = set(json.loads(quantized.read_text())), 0.0
    for tensor in onnx.load(str(path), load_external_data=False).graph.initializer:
        count = int(np.prod(tensor.dims))
        size += count * (bits / 8 + (2 + bits / 8) / block) if tensor.name in names else 4 * count
    return int(size)
