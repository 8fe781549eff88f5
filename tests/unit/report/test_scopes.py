"""The module that a node was exported from, by what exporters write."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from dovetail_report.collect.document import document
from dovetail_report.collect.scopes import scope_of

TORCH, PADDLE = "pkg.torch.onnx.name_scopes", "paddle.struct_name"


@pytest.mark.parametrize(
    ("key", "text", "scope"),
    [
        (TORCH, "['', 'm', 'm.model', 'm.model.layers.0', 'm.model.layers.0.mlp', 'linear']", "m/model/layers.0/mlp"),
        (TORCH, "['', 'conv1', 'conv2d']", "conv1"),
        (TORCH, "['', 'linear']", ""),
        (TORCH, "['', 'a', 'b.c', 'add']", "a/b.c"),  # a module that is called from elsewhere
        (TORCH, "['_empty_nn_module_stack_from_metadata_hook', 'sym_size_int_6']", ""),
        (TORCH, "['', 'a/b', 'add']", "a|b"),  # a name that looks like a path
        (TORCH, "no list", ""),
        (TORCH, "", ""),
        (PADDLE, "/PPLCNet/ConvBNLayer/Conv2D/", "PPLCNet/ConvBNLayer/Conv2D"),
        (PADDLE, "/", ""),
        ("author", "somebody", ""),
    ],
)
def test_scope_of_a_node(key, text, scope):
    node = ir.Node("", "Relu", [ir.Value(name="x")], metadata_props={key: text})
    assert scope_of(node) == scope


def test_a_path_of_any_length_is_cut():
    path = [".".join("a" * depth) for depth in range(1, 500)]
    node = ir.Node("", "Relu", [ir.Value(name="x")], metadata_props={TORCH: str(["", *path, "relu"])})
    assert scope_of(node) == "/".join("a" * 12)


@pytest.mark.parametrize("backend", ["host", "bpu-int8"])
def test_nodes_keep_their_scope_where_they_are_fused_and_expanded(backend):
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
      [conv] a = Conv (x, w)
      [relu] y = Relu (a)
    }""")
    for node in model.graph.node:
        node.metadata_props.add(key=TORCH, value=f"['', 'net', 'net.{node.name}', 'call']")
    data = {"x": np.ones((1, 4, 8, 8), "float32")}
    nodes = document(dovetail.compile(model, backend, data=data, try_engines=False))["nodes"]
    scopes = {name: nodes["scopes"][scope] for name, scope in zip(nodes["name"], nodes["scope"], strict=True)}
    assert scopes == {"conv": "net/conv", "relu": "net/relu"}
