"""`dovetail doctor MODEL`: the size of weights, wherever a file has them."""

import dovetail
import numpy as np
import onnx
from dovetail_commands.doctor import examine_model
from onnx import TensorProto, helper, numpy_helper


def test_weights_of_constant_nodes_are_counted(tmp_path):
    held, given = (numpy_helper.from_array(np.ones((16, 16), np.float32), name) for name in ("held", "given"))
    nodes = [
        helper.make_node("Constant", [], ["held"], value=held),
        helper.make_node("MatMul", ["x", "held"], ["product"]),
        helper.make_node("MatMul", ["product", "given"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [given])
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    found = examine_model(dovetail.open(file), file)
    assert (found["weights"], found["bytes"]) == (2, 2 * 16 * 16 * 4)
