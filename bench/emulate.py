"""What bfloat16 costs in accuracy, on any CPU: compute in float32 and round every bfloat16 value.

    python bench/emulate.py MODEL [--backend cpu-bf16]

OpenVINO computes in float32 on a CPU without bfloat16 instructions, so SNRs measured there say little. Here the
compiled model is rewritten: every value that is bfloat16 is computed in float32 by ONNX Runtime and rounded by a pair
of casts. That is what AMX does (products summed in float32, results rounded), apart from the order of sums. It is shown
twice: with every rounding, and without those in front of elementwise operators, which engines fuse with what stands
before them: an upper bound.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail
import onnx
import onnx_ir as ir
import onnxruntime
from dovetail.ir import replace_uses_except
from dovetail_verify.compare import verify

FUSED = frozenset({"Add", "Div", "Erf", "Gelu", "Mul", "Neg", "Pow", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh"})
LOW, HIGH = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def emulate(model: ir.Model, fused: bool) -> None:
    """Rewrite `model`: float32 everywhere, with a pair of casts behind values that were bfloat16.

    Inputs that were bfloat16 are float32 then, and expected to be rounded already.
    """
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.inputs:
            if value.dtype == LOW:
                value.dtype = HIGH
        for value in graph.initializers.values():
            if value.dtype == LOW:
                value.const_value = ir.tensor(value.const_value.numpy().astype("float32"), name=value.name)
                value.dtype = HIGH
        for node in list(graph):
            _widen(node)
            for value in node.outputs:
                if value.dtype == LOW:
                    value.dtype = HIGH
                    if not (fused and _only_read_elementwise(value)):
                        _round(graph, node, value)


def _widen(node: ir.Node) -> None:
    """Let the attributes of `node` that say bfloat16 say float32."""
    for name in ("to", "dtype"):
        if name in node.attributes and node.attributes.get_int(name) == LOW:
            node.attributes[name] = ir.AttrInt64(name, HIGH.value)
    filled = node.attributes.get("value")
    if filled is not None and filled.type == ir.AttributeType.TENSOR and filled.as_tensor().dtype == LOW:
        node.attributes["value"] = ir.AttrTensor("value", ir.tensor(filled.as_tensor().numpy().astype("float32")))


def _only_read_elementwise(value: ir.Value) -> bool:
    readers = [node.op_type for node, _ in value.uses()]
    return bool(readers) and not value.is_graph_output() and FUSED.issuperset(readers)


def _round(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    low = ir.node("Cast", [value], {"to": LOW.value}, name=f"{value.name}_low")
    high = ir.node("Cast", [low.outputs[0]], {"to": HIGH.value}, name=f"{value.name}_rounded")
    low.outputs[0].name, high.outputs[0].name = f"{value.name}_low", f"{value.name}_rounded"
    low.outputs[0].dtype, high.outputs[0].dtype = LOW, HIGH
    graph.insert_after(node, [low, high])
    replace_uses_except(value, high.outputs[0], keep=(low,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="cpu-bf16")
    options = parser.parse_args()
    for fused in (False, True):
        print("without roundings inside fused operators:" if fused else "with every rounding:")
        print("\n".join(measure(options.model, options.backend, fused)))


def measure(path: Path, backend: str, fused: bool) -> list[str]:
    original = dovetail.open(path)
    compiled = dovetail.compile(path, [backend], verify=False)
    emulate(compiled.model.ir, fused)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        rewritten = Path(folder, "emulated.onnx")
        compiled.model.save(rewritten)
        onnx.checker.check_model(str(rewritten))
        sessions = [
            onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
            for file in (path, rewritten)
        ]
        names = [output.name for output in sessions[0].get_outputs()]
        runs = [lambda feeds, s=s: dict(zip(names, s.run(names, feeds), strict=True)) for s in sessions]
        data = path.with_suffix(".npz")
        return verify(original, *runs, data if data.exists() else None).lines()


if __name__ == "__main__":
    main()
