"""Time of lowering and of rewrites over the number of nodes (CPU seconds).

    python bench/lowering.py --nodes 10000 100000 [--onnxscript]

`lower` takes a chain of LayerNormalization, Softmax along an inner axis, ReduceMean with axes as an input, and seven
element-wise operators from opset 18 to opset 11. `fold` folds batch norms into convolutions, a third of the nodes;
with `--onnxscript`, that package's rewriter does the same work, and looks for a hundred patterns that do not occur.
"""

import argparse
import time

import numpy as np
import onnx_ir as ir
from dovetail.ir import Model, gc_paused
from dovetail.passes import Context
from dovetail_transforms.canonicalize.fold_batchnorm import FoldBatchNorm
from dovetail_transforms.lowering import lower

FLOAT = ir.TensorType(ir.DataType.FLOAT)
CHAIN = ("LayerNormalization", "Relu", "Sigmoid", "Softmax", "Tanh", "Abs", "ReduceMean", "Relu", "Sigmoid", "Neg")


def value(name, shape, tensor=None):
    return ir.Value(name=name, type=FLOAT, shape=ir.Shape(shape), const_value=tensor)


def constant(name, array):
    return ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        shape=ir.Shape(array.shape),
        const_value=ir.tensor(array, name=name),
    )


def model_of(inputs, outputs, nodes, initializers, opset):
    graph = ir.Graph(inputs, outputs, nodes=nodes, initializers=initializers, opset_imports={"": opset}, name="g")
    return Model(ir.Model(graph, ir_version=8))


def chain(count):
    x, scale, axes = value("x", [2, 3, 4]), constant("scale", np.ones(4, np.float32)), constant("axes", np.array([1]))
    nodes, last = [], x
    for index in range(count):
        op_type = CHAIN[index % len(CHAIN)]
        inputs = [last, *{"LayerNormalization": [scale], "ReduceMean": [axes]}.get(op_type, [])]
        attributes = [ir.AttrInt64("axis", 1)] if op_type == "Softmax" else []
        result = value(f"v{index}", last.shape.dims if op_type != "ReduceMean" else [2, 1, 4])
        nodes.append(ir.Node("", op_type, inputs, attributes, outputs=[result], name=f"n{index}"))
        last = result
    return model_of([x], [last], nodes, [scale, axes], 18)


def convolutions(count):
    x, weight = value("x", [1, 4, 8, 8]), constant("w", np.ones((4, 4, 1, 1), np.float32))
    ones = constant("ones", np.ones(4, np.float32))
    nodes, last = [], x
    for index in range(count // 3):
        for op_type, rest in (("Conv", [weight]), ("BatchNormalization", [ones] * 4), ("Relu", [])):
            result = value(f"{op_type}{index}", [1, 4, 8, 8])
            nodes.append(ir.Node("", op_type, [last, *rest], outputs=[result], name=f"n_{op_type}{index}"))
            last = result
    return model_of([x], [last], nodes, [weight, ones], 18)


def with_onnxscript(model):
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet

    def pattern(op, x, w, scale, shift, mean, variance):
        return op.BatchNormalization(op.Conv(x, w), scale, shift, mean, variance)

    RewriteRuleSet([RewriteRule(pattern, lambda op, x, w, shift, **_: op.Conv(x, w, shift))]).apply_to_model(model.ir)


def hundred_patterns(model):
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet

    def rule(name):
        return RewriteRule(lambda op, x: getattr(op, name)(x), lambda op, x: op.Identity(x))

    RewriteRuleSet([rule(f"Absent{index}") for index in range(100)]).apply_to_model(model.ir)


def seconds(make, work, count, repeat):
    best = float("inf")
    for _ in range(repeat):
        with gc_paused():
            model = make(count)
        start = time.process_time()
        work(model)
        best = min(best, time.process_time() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10000, 100000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--onnxscript", action="store_true")
    arguments = parser.parse_args()
    steps = {
        "lower": (chain, lambda model: lower(model, 11)),
        "fold": (convolutions, lambda model: FoldBatchNorm().run(model, Context())),
    }
    if arguments.onnxscript:
        steps["fold, onnxscript"] = (convolutions, with_onnxscript)
        steps["100 absent patterns, onnxscript"] = (convolutions, hundred_patterns)
    print(f"| step | {' | '.join(f'{count} nodes' for count in arguments.nodes)} | ratio |")
    print("|---" * (len(arguments.nodes) + 2) + "|")
    for name, (make, work) in steps.items():
        times = [seconds(make, work, count, arguments.repeat) for count in arguments.nodes]
        print(f"| {name} | {' | '.join(f'{one:.3g}' for one in times)} | {times[-1] / times[0]:.3g} |", flush=True)


if __name__ == "__main__":
    main()
