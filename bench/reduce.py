"""`dovetail.reduce` on 20 models of 500 nodes, each with one of five kinds of planted defects.

    python bench/reduce.py [--nodes 500] [--only accuracy]

| kind | what is planted | what says that it fails |
|---|---|---|
| operator | an operator with attributes that a tool does not know | a command, which exits with 3 |
| pair | an Add of two Relus, which a pass fuses wrongly | a function: outputs before and after |
| range | a product that float16 cannot hold, of inputs that are scaled before | a function: a value above 65504 |
| accuracy | large weights that cancel | a backend, gpu-fp16 or cpu-bf16, and `min_snr=20` |
| error | a Transpose of rank 5, which a planted pass refuses | a backend and `raises` |

The nets are chains of blocks with residuals, shapes that are computed, and three outputs, from seeds 0 to 3.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
from dovetail.plugin import hookimpl
from onnx import TensorProto, helper, numpy_helper

WIDTH, ROWS = 16, 8

UNKNOWN = """
import sys, onnx
for node in onnx.load(sys.argv[1]).graph.node:
    if node.op_type == "Elu" and node.attribute and abs(node.attribute[0].f - 0.7) < 1e-6:
        sys.exit(f"{node.name}: alpha is not supported") if len(sys.argv) > 2 else sys.exit(3)
"""


class Net:
    """Blocks of MatMul, an activation and a residual, with a reshape to a computed shape now and then."""

    def __init__(self, seed):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], []
        self.value, self.number = "x", 0

    def add(self, op_type, *inputs, name="", **attributes):
        self.number += 1
        output = f"v{self.number}"
        self.nodes.append(
            helper.make_node(op_type, inputs, [output], name or f"{op_type.lower()}_{self.number}", **attributes)
        )
        return output

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def block(self):
        turn = np.linalg.qr(self.rng.standard_normal((WIDTH, WIDTH)))[0].astype(np.float32)
        kind = self.rng.integers(4)
        made = self.add("MatMul", self.value, self.weight(turn))
        if kind == 0:
            shape = self.add("Shape", made)
            flat = self.add("Reshape", made, self.weight(np.array([-1], np.int64)))
            made = self.add("Reshape", flat, shape)
        made = self.add(("Abs", "Tanh", "Elu", "Neg")[kind], made)
        self.value = self.add("Sub" if kind == 3 else "Add", made, self.value)
        self.value = self.add("Div", self.value, self.weight(np.float32(1.5)))

    def model(self, nodes, at, plant):
        outputs = []
        while len(self.nodes) < nodes:
            if plant and len(self.nodes) >= at:
                plant(self)
                plant = None
            self.block()
            if len(self.nodes) > nodes * (len(outputs) + 1) // 3 - 8 and len(outputs) < 2:
                outputs.append(self.value)
        outputs.append(self.value)
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", "z", *outputs)]
        graph = helper.make_graph(self.nodes, "net", info[:2], info[2:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def plant_operator(net):
    net.value = net.add("Elu", net.value, alpha=0.7, name="planted")


def plant_pair(net):
    left, right = net.add("Relu", net.value, name="planted_left"), net.add("Relu", "z", name="planted_right")
    net.block()
    net.value = net.add("Add", net.value, net.add("Add", left, right, name="planted"))


def plant_range(net):
    scaled = net.add("Mul", "z", net.weight(np.float32(3e4)), name="planted_scale")
    large = net.add("Mul", scaled, net.weight(np.float32(5)), name="planted")
    net.value = net.add("Add", net.value, net.add("Tanh", large))


def plant_accuracy(net):
    array = 1000 + net.rng.standard_normal((2 * WIDTH, WIDTH)) / 8
    both = net.add("Concat", "z", net.add("Neg", "z"), axis=1)
    net.value = net.add("Add", net.value, net.add("MatMul", both, net.weight(array.astype(np.float32)), name="planted"))


def plant_error(net):
    shape = net.add("Shape", net.value)
    deep = net.add("Reshape", net.value, net.weight(np.array([-1, 2, 2, 2, 2], np.int64)))
    turned = net.add("Transpose", deep, perm=[0, 4, 3, 2, 1], name="planted")
    net.value = net.add("Reshape", turned, shape)


def outputs_of(proto, feeds):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})


def proto_of(model, folder):
    path = Path(folder) / "model.onnx"
    model.save(path)
    return onnx.load(path)


def fused_wrongly(model, feeds):
    """Add of two Relus becomes Relu of Add, as a careless rewrite makes it."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = proto_of(model, folder), proto_of(model, folder)
    made = {name: node for node in after.graph.node for name in node.output}
    for node in after.graph.node:
        operands = [made.get(name) for name in node.input]
        if node.op_type == "Add" and all(operand is not None and operand.op_type == "Relu" for operand in operands):
            for index, operand in enumerate(operands):
                node.input[index] = operand.input[0]
    pairs = zip(outputs_of(before, feeds), outputs_of(after, feeds))
    return any(not np.allclose(one, other, atol=1e-4) for one, other in pairs)


def out_of_range(model, feeds):
    """A value is above the largest of float16 that is not among the inputs."""
    with tempfile.TemporaryDirectory() as folder:
        proto = proto_of(model, folder)
    typed = onnx.shape_inference.infer_shapes(proto)
    known = {value.name for value in proto.graph.output}
    proto.graph.output.extend(value for value in typed.graph.value_info if value.name not in known)
    return any(np.abs(array).max() > 65504 for array in outputs_of(proto, feeds) if array.dtype == np.float32)


class Refuses:
    """A pass that refuses Transpose of rank 5."""

    dovetail_api = 1

    @hookimpl
    def before_opening(self, registry):
        pass

    @hookimpl
    def configure_pipeline(self, pipeline, request):
        pipeline.steps.append(RefuseRank5())


@dataclass(frozen=True)
class RefuseRank5(dovetail.Pass):
    """Refuse Transpose of rank 5."""

    name = "refuse-rank-5"
    stage = "place"

    def run(self, model, ctx):
        for node in model.nodes():
            if node.op_type == "Transpose" and len(node.attributes["perm"].as_ints()) == 5:
                raise dovetail.DovetailError(f"node '{node.name}': rank 5 is not supported")
        return False


def reduced(kind, seed, model, folder):
    rng = np.random.default_rng(seed)
    feeds = {
        "x": rng.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "z": rng.integers(-2, 3, (ROWS, WIDTH)).astype(np.float32),
    }
    if kind == "operator":
        script = folder / "tool.py"
        script.write_text(UNKNOWN)
        command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{model}}"
        return dovetail.reduce(model, check=command, data=feeds)
    if kind == "accuracy":
        return dovetail.reduce(model, ("gpu-fp16", "cpu-bf16")[seed % 2], min_snr=20, data=feeds)
    if kind == "error":
        plugins = dovetail.load_plugins()
        plugins.attach(Refuses(), "refuses")
        return dovetail.reduce(model, "cpu-bf16", raises="rank 5 is not supported", data=feeds, plugins=plugins)
    return dovetail.reduce(model, check={"pair": fused_wrongly, "range": out_of_range}[kind], data=feeds)


PLANTS = {
    "operator": plant_operator,
    "pair": plant_pair,
    "range": plant_range,
    "accuracy": plant_accuracy,
    "error": plant_error,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--only", choices=PLANTS)
    options = parser.parse_args()
    print("| defect | nodes | left | checks | largest array left | bytes of the net | seconds | kept |")
    print("|---|---|---|---|---|---|---|---|")
    most = 0
    for kind in [options.only] if options.only else PLANTS:
        for seed in range(4):
            at = options.nodes * (2 * seed + 1) // 8
            proto = Net(seed).model(options.nodes, at, PLANTS[kind])
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                found = reduced(kind, seed, proto, Path(folder))
            seconds = time.perf_counter() - started
            weights = [tensor.const_value.size for tensor in found.model.graph.initializers.values()]
            largest = max([array.size for array in found.feeds.values()] + weights, default=0)
            cells = (f"{kind} {seed}", found.source_nodes, len(found.nodes), found.checks, largest, proto.ByteSize(),
                     f"{seconds:.1f}", ", ".join(found.nodes))  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            most = max(most, len(found.nodes))
    print(f"\nat most {most} nodes are left")


if __name__ == "__main__":
    main()
