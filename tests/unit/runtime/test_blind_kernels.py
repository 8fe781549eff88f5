"""Kernels of ONNX Runtime that read inputs which a node may leave out; in child processes, which they would end."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from dovetail_onnx.native_runtime import READ_TO_THE_END
from onnx import TensorProto, helper, numpy_helper

KINDS = {"uint8": (np.uint8, TensorProto.UINT8), "int8": (np.int8, TensorProto.INT8)}
RUN = """
import sys, numpy as np, onnx, dovetail
from dovetail_onnx.source.snapshot import runtime_error
data, *paths = sys.argv[1:]
for path in paths:
    assert not runtime_error(onnx.load(path))
    compiled = dovetail.compile(path, "cpu-bf16", data=data, verify=True)
    compiled.save(path + ".out")
    print(next(iter(compiled.run(dict(np.load(data))).values())).ravel().tolist())
    print([remark.node for remark in compiled.remarks if remark.rule == "zero-point"])
"""


def model(op_type: str, kind: str, zero: bool, inside: str) -> onnx.ModelProto:
    """A model with one such node in the main graph, in a local function, or in the branch of an If."""
    dtype, number = KINDS[kind]
    inputs = ["x", "s", "", "t", *(["z"] if zero else [])]
    attributes = {"alpha": 0.2} if op_type == "QLinearLeakyRelu" else {}
    node = helper.make_node(op_type, inputs, ["y"], "n", domain="com.microsoft", **attributes)
    imports = [helper.make_opsetid(*one) for one in (("", 17), ("com.microsoft", 1), ("own", 1))]
    functions, nodes = [], [node]
    constants = {"s": np.float32(0.05), "t": np.float32(1 / 64), "z": dtype(0), "c": np.bool_(True)}
    if inside == "function":
        functions = [helper.make_function("own", "F", ["x", "s", "t", "z"], ["y"], nodes, imports)]
        nodes = [helper.make_node("F", ["x", "s", "t", "z"], ["y"], "call", domain="own")]
    elif inside == "branch":
        node.output[0] = "inner"
        result = helper.make_tensor_value_info("inner", number, [2, 5])
        body = helper.make_graph(nodes, "b", [], [result])
        nodes = [helper.make_node("If", ["b"], ["y"], "if", then_branch=body, else_branch=body)]
    borders = [helper.make_tensor_value_info(name, number, [2, 5]) for name in "xy"]
    given = [borders[0], *([helper.make_tensor_value_info("b", TensorProto.BOOL, [])] if inside == "branch" else [])]
    weights = [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", given, borders[1:], weights)
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


@pytest.mark.generated
@pytest.mark.parametrize("inside", ["main graph", "function", "branch"])
@pytest.mark.parametrize(("op_type", "kind"), list(zip((name for _, name in READ_TO_THE_END), KINDS, strict=True)))
def test_a_zero_point_left_out_is_zero_and_ends_no_process(op_type, kind, inside, tmp_path):
    feeds = {"x": np.arange(-5, 5).reshape(2, 5).astype(KINDS[kind][0])}
    np.savez(tmp_path / "x.npz", **feeds, **({"b": np.array(True)} if inside == "branch" else {}))
    paths = [tmp_path / "without.onnx", tmp_path / "with.onnx"]
    for path in paths:
        onnx.save(model(op_type, kind, path.stem == "with", inside), path)
    command = [sys.executable, "-c", RUN, str(tmp_path / "x.npz"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results, remarked = done.stdout.splitlines()[-4::2], done.stdout.splitlines()[-3::2]
    assert [one == "[]" for one in remarked] == [False, True]
    for path in paths:
        saved = onnx.load(f"{path}.out/model.onnx")
        nested = [one.attribute[0].g.node for one in saved.graph.node if one.op_type == "If"]
        assert all(
            len(one.input) == 5
            for nodes in (saved.graph.node, *nested)
            for one in nodes
            if one.op_type == op_type
        )  # fmt: skip
    assert results[0] == results[1]
