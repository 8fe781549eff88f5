"""Long lists of attributes, such as those of tree ensembles: held compactly, and written as they were read."""

from array import array

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.planning import structural_keys
from dovetail_onnx.type_gaps import from_proto, to_bytes, to_proto
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


def forest_attribute(name):
    return next(one for one in forest().graph.node[0].attribute if one.name == name)


def test_they_are_written_as_they_were_read_in_the_same_order():
    proto = forest()
    assert to_proto(from_proto(proto)).graph.node[0] == proto.graph.node[0]


def test_numbers_are_arrays_and_equal_texts_are_one_object():
    attributes = next(iter(from_proto(forest()).graph)).attributes
    assert isinstance(attributes["nodes_nodeids"].value, array)
    assert isinstance(attributes["nodes_values"].value, array)
    assert len({id(text) for text in attributes["nodes_modes"].value}) == 2
    assert attributes["n_targets"].value == 1


def test_lists_of_models_that_live_at_the_same_time_are_held_once():
    first, second = (next(iter(from_proto(forest()).graph)).attributes for _ in range(2))
    for name in ("nodes_values", "nodes_nodeids", "nodes_modes"):
        assert first[name].value is second[name].value


def test_they_hold_what_the_model_says():
    attributes = next(iter(from_proto(forest()).graph)).attributes
    for name in ("nodes_values", "nodes_nodeids"):
        written = forest_attribute(name)
        assert list(attributes[name].value) == [*written.ints, *written.floats]
    assert list(attributes["nodes_modes"].value) == [text.decode() for text in forest_attribute("nodes_modes").strings]


def test_plans_find_a_node_by_texts_as_before():
    """The key of a node is recorded in plans, so it must not depend on how the texts are held."""
    model = dovetail.open(forest())
    held = list(structural_keys(model).values())
    (node,) = model.graph
    texts = node.attributes["nodes_modes"]
    node.attributes.add(ir.Attr(texts.name, texts.type, tuple(texts.value)))
    assert list(structural_keys(model).values()) == held


def test_bytes_for_engines_hold_all_nodes_in_order():
    proto = forest()
    trees = proto.graph.node.pop()
    for index in range(3):
        node = proto.graph.node.add()
        node.CopyFrom(trees)
        node.input[0], node.output[0], node.name = "x", f"y{index}", f"trees{index}"
        proto.graph.node.append(helper.make_node("Neg", [f"y{index}"], [f"z{index}"], f"neg{index}"))
    proto.graph.node.append(helper.make_node("Sum", ["z0", "z1", "z2"], ["y"], "sum"))
    read = onnx.ModelProto.FromString(to_bytes(from_proto(proto)))
    expected = to_proto(from_proto(proto))
    for model in (read, expected):
        for node in model.graph.node:
            node.attribute.sort(key=lambda one: one.name)
    assert read == expected


def test_bytes_of_a_model_without_long_lists_are_those_of_its_proto():
    proto = forest()
    proto.graph.node[0].ClearField("attribute")
    model = from_proto(proto)
    assert to_bytes(model) == to_proto(model).SerializeToString()


def test_a_list_under_another_name_is_written_under_that_name():
    model = from_proto(forest())
    (node,) = model.graph
    kept = node.attributes.pop("nodes_values")
    node.attributes.add(ir.Attr("nodes_other", kept.type, kept.value))
    written = {one.name: one for one in to_proto(model).graph.node[0].attribute}
    assert written["nodes_other"].floats == forest_attribute("nodes_values").floats
    assert "nodes_values" not in written


def test_lists_of_nodes_that_moved_into_a_body_are_written():
    """Beside one in the main graph, which is copied in its encoded form."""
    model = from_proto(forest())
    (node,) = model.graph
    inner = ir.Node("ai.onnx.ml", node.op_type, model.graph.inputs, attributes=node.attributes.values())
    inner.outputs[0].name = "inside"
    body = ir.Graph([], inner.outputs, nodes=[inner], name="body")
    condition = ir.Value(name="c", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    model.graph.inputs.append(condition)
    branches = {"then_branch": body, "else_branch": body.clone(allow_outer_scope_values=True)}
    model.graph.append(ir.node("If", [condition], branches))
    tree, choice = to_proto(model).graph.node
    assert [branch.g.node[0].attribute for branch in choice.attribute] == [tree.attribute] * 2


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
