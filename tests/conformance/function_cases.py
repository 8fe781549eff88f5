"""Models with local functions of many kinds, each with what it computes, in numpy."""

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

X = np.random.default_rng(0).uniform(-2, 2, (3, 4)).astype(np.float32)
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]


def node(op, inputs, outputs, name="", domain="", refs=None, **attributes):
    """A node; `refs` are attributes that refer to one of the function: {name: (name there, kind)}."""
    made = helper.make_node(op, inputs, outputs, name, domain=domain, **attributes)
    for attribute, (other, kind) in (refs or {}).items():
        made.attribute.add(name=attribute, ref_attr_name=other, type=kind)
    return made


def call(function, inputs, outputs, **more):
    return node(function, inputs, outputs, more.pop("name", ""), "my", **more)


def function(name, inputs, outputs, nodes, attributes=(), defaults=None, opset=18, overload=""):
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    held = [helper.make_attribute(key, value) for key, value in (defaults or {}).items()]
    made = helper.make_function("my", name, inputs, outputs, nodes, opsets, list(attributes), held)
    made.overload = overload
    return made


def model(nodes, functions, outputs=("y",), opset=18, inputs=(), held=()):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    for result in results:
        result.CopyFrom(helper.make_tensor_value_info(result.name, TensorProto.FLOAT, None))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    graph = helper.make_graph(nodes, "g", [x, *inputs], results, list(held))
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


def leaky(x, slope):
    return np.where(x < 0, np.float32(slope) * x, x)


SLOPE = {"alpha": ("slope", AttributeProto.FLOAT)}
ACT = function("Act", ["X"], ["Y"], [node("LeakyRelu", ["X"], ["Y"], refs=SLOPE)], defaults={"slope": 0.25})
BARE = function("Bare", ["X"], ["Y"], [node("LeakyRelu", ["X"], ["Y"], refs=SLOPE)], ["slope"])


def branches(refs):
    """An If in a function: a branch that refers to an attribute of the function."""
    out = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
    then = helper.make_graph([node("LeakyRelu", ["X"], ["b"], refs=refs)], "then", [], [out])
    other = helper.make_graph([node("Neg", ["X"], ["b"])], "else", [], [out])
    total = [node("ReduceSum", ["X"], ["s"], keepdims=0), node("Abs", ["s"], ["p"]), node("Cast", ["p"], ["c"], to=9)]
    return [*total, node("If", ["c"], ["Y"], then_branch=then, else_branch=other)]


def in_branch():
    """A call in a branch of the main graph, on a value from outside, whose names also stand in the function."""
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    then = helper.make_graph([call("Twice", ["t"], ["r"])], "then", [], [out])
    other = helper.make_graph([node("Neg", ["t"], ["r"])], "else", [], [out])
    nodes = [node("Tanh", ["x"], ["t"]), node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    yes = numpy_helper.from_array(np.array(True), "yes")
    return model(nodes, [TWICE], held=[yes])


def in_loop():
    out = [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("n", 1, None)]
    given = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("t", TensorProto.FLOAT, None),
    ]
    body = helper.make_graph([node("Identity", ["c"], ["go"]), call("Twice", ["t"], ["n"])], "body", given, out)
    trips = numpy_helper.from_array(np.array(3), "trips")
    return model([node("Loop", ["trips", "", "x"], ["y"], body=body)], [TWICE], held=[trips])


TWICE = function("Twice", ["v"], ["w"], [node("Identity", ["v"], ["t"]), node("Add", ["t", "v"], ["w"])])
CLIP = function("Bounded", ["X", "low", "high"], ["Y"], [node("Clip", ["X", "low", "high"], ["Y"])])
SPLIT = function("Halves", ["X"], ["A", "B"], [node("Split", ["X"], ["A", "B"], axis=1, num_outputs=2)])
LOW, HIGH = (numpy_helper.from_array(np.float32(v), n) for v, n in ((-0.5, "low"), (0.5, "high")))
CASES = {
    "a default": (model([call("Act", ["x"], ["y"])], [ACT]), leaky(X, 0.25)),
    "a given value": (model([call("Act", ["x"], ["y"], slope=0.5)], [ACT]), leaky(X, 0.5)),
    "a default behind a default": (
        model([call("Outer", ["x"], ["y"])], [
            function("Outer", ["X"], ["Y"], [call("Act", ["X"], ["Y"], refs={"slope": ("steep", 1)})],
                     defaults={"steep": 0.75}), ACT]),
        leaky(X, 0.75),
    ),
    "a default of the inner function alone": (
        model([call("Outer", ["x"], ["y"])], [
            function("Outer", ["X"], ["Y"], [call("Act", ["X"], ["m"]), node("Neg", ["m"], ["Y"])]), ACT]),
        -leaky(X, 0.25),
    ),
    "an inner default where the outer attribute is missing": (
        model([call("Outer", ["x"], ["y"])], [
            function("Outer", ["X"], ["Y"], [call("Act", ["X"], ["Y"], refs={"slope": ("steep", 1)})], ["steep"]),
            ACT]),
        leaky(X, 0.25),
    ),
    "an attribute without a value": (model([call("Bare", ["x"], ["y"])], [BARE]), leaky(X, 0.01)),
    "an attribute with a value": (model([call("Bare", ["x"], ["y"], slope=0.5)], [BARE]), leaky(X, 0.5)),
    "a default in a branch": (
        model([call("Deep", ["x"], ["y"])],
              [function("Deep", ["X"], ["Y"], branches(SLOPE), defaults={"slope": 0.25})]),
        leaky(X, 0.25),
    ),
    "a given value in a branch": (
        model([call("Deep", ["x"], ["y"], slope=0.5)],
              [function("Deep", ["X"], ["Y"], branches(SLOPE), defaults={"slope": 0.25})]),
        leaky(X, 0.5),
    ),
    "two calls with different values": (
        model([call("Act", ["x"], ["m"]), call("Act", ["m"], ["n"], slope=0.5), call("Act", ["n"], ["y"])], [ACT]),
        leaky(leaky(leaky(X, 0.25), 0.5), 0.25),
    ),
    "a default list": (
        model([call("Flip", ["x"], ["y"])], [
            function("Flip", ["X"], ["Y"], [node("Transpose", ["X"], ["Y"], refs={"perm": ("order", 7)})],
                     defaults={"order": [1, 0]})]),
        X.T,
    ),
    "a default tensor": (
        model([call("Plus", ["x"], ["y"])], [
            function("Plus", ["X"], ["Y"], [node("Constant", [], ["k"], refs={"value": ("term", 4)}),
                                            node("Add", ["X", "k"], ["Y"])],
                     defaults={"term": numpy_helper.from_array(np.float32([3]))})]),
        X + 3,
    ),
    "a default number as a constant": (
        model([call("Plus", ["x"], ["y"])], [
            function("Plus", ["X"], ["Y"], [node("Constant", [], ["k"], refs={"value_float": ("term", 1)}),
                                            node("Add", ["X", "k"], ["Y"])], defaults={"term": 1.5})]),
        X + np.float32(1.5),
    ),
    "a default text": (
        model([call("Down", ["x"], ["y"])], [
            function("Down", ["X"], ["Y"], [
                node("Constant", [], ["k"], value_ints=[1, 1, 3, 4]), node("Reshape", ["X", "k"], ["i"]),
                node("Constant", [], ["p"], value_ints=[0, 0, 0, 1, 0, 0, 0, 0]),
                node("Pad", ["i", "p"], ["Y"], refs={"mode": ("how", 3)})], defaults={"how": "edge"})]),
        np.pad(X, ((0, 0), (1, 0)), "edge").reshape(1, 1, 3, 5),
    ),
    "all inputs": (model([call("Bounded", ["x", "low", "high"], ["y"])], [CLIP], held=[LOW, HIGH]), X.clip(-0.5, 0.5)),
    "an input left out at the end": (
        model([call("Bounded", ["x", "low"], ["y"])], [CLIP], held=[LOW]), np.maximum(X, -0.5)),
    "an input left out in the middle": (
        model([call("Bounded", ["x", "", "high"], ["y"])], [CLIP], held=[HIGH]), np.minimum(X, 0.5)),
    "inputs left out through two functions": (
        model([call("Outer", ["x", "", "high"], ["y"])], [
            function("Outer", ["a", "b", "c"], ["d"], [call("Bounded", ["a", "b", "c"], ["d"])]), CLIP], held=[HIGH]),
        np.minimum(X, 0.5),
    ),
    "an output left out at the end": (model([call("Halves", ["x"], ["y"])], [SPLIT]), X[:, :2]),
    "an output left out at first": (model([call("Halves", ["x"], ["", "y"])], [SPLIT]), X[:, 2:]),
    "an output that is an input": (
        model([call("Both", ["x"], ["m", "n"]), node("Sub", ["m", "n"], ["y"])], [
            function("Both", ["X"], ["X", "Y"], [node("Neg", ["X"], ["Y"])])]),
        X + X,
    ),
    "an output twice": (
        model([call("Same", ["x"], ["m", "n"]), node("Mul", ["m", "n"], ["y"])], [
            function("Same", ["X"], ["Y", "Y"], [node("Neg", ["X"], ["Y"])])]),
        X * X,
    ),
    "names as outside": (
        model([node("Neg", ["x"], ["t"]), call("Twice", ["t"], ["v"]), call("Twice", ["v"], ["w"]),
               node("Add", ["w", "t"], ["y"])], [TWICE]),
        -5 * X,
    ),
    "one input twice": (
        model([call("Sub2", ["x", "x"], ["y"])], [
            function("Sub2", ["a", "b"], ["c"], [node("Neg", ["b"], ["d"]), node("Sub", ["a", "d"], ["c"])])]),
        X + X,
    ),
    "a call in a branch": (in_branch(), 2 * np.tanh(X)),
    "a call in a loop": (in_loop(), 8 * X),
    "overloads": (
        model([call("F", ["x"], ["m"]), call("F", ["m"], ["y"])], [
            function("F", ["X"], ["Y"], [node("Neg", ["X"], ["Y"])], overload="one"),
            function("F", ["X"], ["Y"], [node("Exp", ["X"], ["Y"])], overload="two")]),
        np.exp(-X),
    ),
    "an older function with a default": (
        model([call("Sums", ["x"], ["y"])], [
            function("Sums", ["X"], ["Y"], [node("ReduceSum", ["X"], ["Y"], keepdims=1, refs={"axes": ("along", 7)})],
                     defaults={"along": [1]}, opset=11)]),
        X.sum(1, keepdims=True),
    ),
    "an older function with a softmax": (
        model([call("Soft", ["x"], ["y"])], [
            function("Soft", ["X"], ["Y"], [node("Softmax", ["X"], ["Y"], axis=0)], opset=11)]),
        (np.exp(X) / np.exp(X).sum()),
    ),
    "a newer function": (
        model([node("Softmax", ["x"], ["s"], axis=0), call("Gel", ["s"], ["y"])], [
            function("Gel", ["X"], ["Y"], [node("Abs", ["X"], ["Y"])], opset=13)], opset=11),
        (np.exp(X) / np.exp(X).sum()),
    ),
    "a function that nobody calls": (model([node("Neg", ["x"], ["y"])], [ACT]), -X),
}  # fmt: skip
for _model, _expected in CASES.values():
    for _result in _model.graph.output:
        _result.CopyFrom(helper.make_tensor_value_info(_result.name, TensorProto.FLOAT, _expected.shape))
for _one, _overload in zip(CASES["overloads"][0].graph.node, ("one", "two"), strict=True):
    _one.overload = _overload
