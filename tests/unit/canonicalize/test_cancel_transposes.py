"""Whatever is computed in another order of axes, the results are the same bit for bit."""

import itertools
from collections import Counter

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

PLUGINS = load_plugins()
THERE, BACK = "Transpose <perm = [0, 2, 3, 1]>", "Transpose <perm = [0, 3, 1, 2]>"
# Nodes from x to y, both float[1,2,3,4], and maybe z; and how many transposes are left.
CASES = {
    "another reader": (f"a = {THERE} (x) b = Relu (a) y = {BACK} (b) z = Exp (b)", 1),
    "a reader that needs the old order": (f"a = {THERE} (x) b = Relu (a) y = {BACK} (b) z = Softmax (b)", 1),
    "an output in the old order": (f"a = {THERE} (x) z = Relu (a) y = {BACK} (z)", 1),
    "a transpose that others read": (f"a = {THERE} (x) b = Relu (a) c = {BACK} (b) y = Neg (c) z = Softmax (a)", 1),
    "two sources": (f"a = {THERE} (x) b = {THERE} (x) c = Add (a, b) d = {BACK} (c) y = Neg (d)", 0),
    "constants per channel": (f"a = {THERE} (x) b = Mul (a, k) c = Exp (b) d = {BACK} (c) y = Neg (d)", 0),
    "two results": (f"a = {THERE} (x) b = Relu (a) c = {BACK} (b) y = Neg (c) d = {BACK} (b) z = Exp (d)", 0),
    "pairs one after the other":
        (f"a = {THERE} (x) b = Relu (a) c = {BACK} (b) d = {THERE} (c) e = Exp (d) f = {BACK} (e) y = Neg (f)", 0),
    "another order behind": (f"a = {BACK} (x) b = Relu (a) c = {BACK} (b) d = {BACK} (c) y = Neg (d)", 3),
    "a condition": (f"a = {THERE} (x) b = Less (a, k) c = Where (b, a, k) d = {BACK} (c) y = Neg (d)", 0),
    "bounds": (f"a = {THERE} (x) b = Clip (a, low) c = {BACK} (b) y = Neg (c)", 0),
    "a reduction that drops its axes":
        (f"a = {THERE} (x) b = Relu (a) z = ReduceMax <keepdims = 0> (b, one) c = {BACK} (b) y = Neg (c)", 1),
}  # fmt: skip


def model(body):
    more = ", float[a,b,c,d] z" if " z = " in body and "keepdims" not in body else ""
    more = ", float[a,b,c] z" if "keepdims" in body else more
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 22]> g (float[1,2,3,4] x) => (float[1,2,3,4] y{more}) '
        f"<float[2] k = {{0.5, -0.25}}, float low = {{-0.5}}, int64[1] one = {{1}}> {{ {body} }}"
    )


def reordered(proto, tmp_path):
    source, target = tmp_path / "source.onnx", tmp_path / "result.onnx"
    onnx.save(proto, source)
    opened = open_model(source)
    pipeline = Pipeline.parse("normalize{opset=22},cancel-transposes,dead-code", PLUGINS.registry)
    pipeline.run(opened, Context(plugins=PLUGINS))
    save_model(opened, target)
    return onnx.load(target)


def transposes(proto):
    return Counter(node.op_type for node in proto.graph.node)["Transpose"]


def check_same(proto, result, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected, found = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (proto, result))
    for wanted, given in zip(expected, found, strict=True):
        np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("case", CASES)
def test_cases(case, tmp_path):
    body, left = CASES[case]
    proto = model(body)
    result = reordered(proto, tmp_path)
    check_same(proto, result, (1, 2, 3, 4))
    assert transposes(result) == left


ORDERS = list(itertools.permutations(range(3)))


def random_model(seed):
    """A graph of transposes in any order and of operators that take each."""
    generator = np.random.default_rng(seed)
    nodes, constants, known = [], [], {"x": (2, 3, 4)}
    for number in range(generator.integers(4, 14)):
        name, names = f"v{number}", list(known)
        source = names[generator.integers(max(0, len(names) - 4), len(names))]
        shape = known[source]
        kind = generator.integers(6)
        if kind < 2:
            order = ORDERS[generator.integers(len(ORDERS))]
            nodes.append(helper.make_node("Transpose", [source], [name], perm=order))
            shape = tuple(shape[axis] for axis in order)
        elif kind == 2:
            others = [other for other, of in known.items() if of == shape]
            nodes.append(helper.make_node("Add", [source, others[generator.integers(len(others))]], [name]))
        elif kind == 3:
            array = generator.standard_normal(shape[generator.integers(3) :]).astype(np.float32)
            constants.append(numpy_helper.from_array(array, f"c{number}"))
            nodes.append(helper.make_node("Mul", [f"c{number}", source], [name]))
        elif kind == 4:
            axis = int(generator.integers(-3, 3))
            nodes.append(helper.make_node("Concat", [source, source], [name], axis=axis))
            shape = tuple(2 * extent if at == axis % 3 else extent for at, extent in enumerate(shape))
        else:
            nodes.append(helper.make_node("Abs", [source], [name]))
        known[name] = shape
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, known[name])
        for name in list(known)[1:]
        if generator.integers(4) == 0 or name == nodes[-1].output[0]
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, known["x"])]
    graph = helper.make_graph(nodes, "g", given, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed, tmp_path):
    proto = random_model(seed)
    result = reordered(proto, tmp_path)
    onnx.checker.check_model(result, full_check=True)
    check_same(proto, result, (2, 3, 4))
    assert transposes(result) <= transposes(proto)
    again = reordered(result, tmp_path)
    assert [node.op_type for node in again.graph.node] == [node.op_type for node in result.graph.node]
