"""Long lists of attributes, such as those of tree ensembles: held compactly, and written as they were read."""

from array import array

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_onnx.type_gaps import from_proto, to_proto
from onnx import TensorProto, helper

TREES, DEPTH = 40, 6
NODES, INNER = 2**DEPTH - 1, 2 ** (DEPTH - 1) - 1


def forest():
    """A regressor of complete trees in one node, with more than a thousand numbers in each attribute."""
    rng = np.random.default_rng(0)
    ids, trees = np.tile(np.arange(NODES), TREES), np.repeat(np.arange(TREES), NODES)
    leaf = ids >= INNER
    attributes = {
        "nodes_treeids": trees,
        "nodes_nodeids": ids,
        "nodes_featureids": np.where(leaf, 0, rng.integers(0, 4, ids.size)),
        "nodes_values": np.where(leaf, 0, rng.random(ids.size)).astype(np.float32),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": np.where(leaf, 0, 2 * ids + 1),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * ids + 2),
        "target_treeids": trees[leaf],
        "target_nodeids": ids[leaf],
        "target_ids": np.zeros(leaf.sum(), int),
        "target_weights": rng.standard_normal(leaf.sum()).astype(np.float32),
    }
    lists = {name: given.tolist() for name, given in attributes.items()}
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        "trees",
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        **lists,
    )
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", floats, ["N", 4])],
        [helper.make_tensor_value_info("y", floats, ["N", 1])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_they_are_written_as_they_were_read_in_the_same_order():
    proto = forest()
    assert to_proto(from_proto(proto)).graph.node[0] == proto.graph.node[0]


def test_numbers_are_arrays_and_equal_texts_are_one_object():
    attributes = next(iter(from_proto(forest()).graph)).attributes
    assert isinstance(attributes["nodes_nodeids"].value, array)
    assert isinstance(attributes["nodes_values"].value, array)
    assert len({id(text) for text in attributes["nodes_modes"].value}) == 2
    assert attributes["n_targets"].value == 1


@pytest.mark.parametrize("opset", [17, 11])
def test_a_forest_compiles_and_computes_the_same(opset, tmp_path):
    proto = forest()
    proto.opset_import[0].version = opset
    feeds = {"x": np.random.default_rng(1).random((5, 4)).astype(np.float32)}
    compiled = dovetail.compile(proto, ["cpu-bf16"], data=feeds)
    compiled.save(tmp_path)
    saved = onnx.load(tmp_path / "model.onnx").graph.node[0]
    source = {attribute.name: attribute for attribute in proto.graph.node[0].attribute}
    assert {attribute.name: attribute for attribute in saved.attribute} == source
    again = dovetail.load(tmp_path).run(feeds)["y"]
    np.testing.assert_array_equal(again, compiled.run(feeds)["y"])
