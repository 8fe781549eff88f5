"""What strategies know of custom operators: a file states it in the form of `ops/onnx.yaml`."""

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from onnx import TensorProto, helper, numpy_helper

OPERATORS = """
domain: {domain}
version: 1
facts:
  groups: {{products: [dense]}}
  kinds: {{index: {{pick: [places]}}}}
operators:
  - op: dense
    args: (Tensor x, Tensor w)
    output: Tensor(out)
    infer_meta: {{func: MatmulInferMeta, param: [x, w]}}
    composite: |
      out = MatMul (x, w)
  - op: pick
    args: (Tensor x, Tensor places)
    output: Tensor(out)
    composite: |
      out = Gather <axis = 0> (x, places)
"""
NPU = """
backend: npu
device: npu
opset: 13..26
precision: {{low: int8, high: float32}}
unlisted: refuse
types: {{q: {{dtype: int8, scheme: symmetric}}}}
ops:
  "{domain}::dense": {{types: q}}
  "{domain}::pick": {{types: {{x: q, out: q}}}}
  Relu: {{types: q}}
place: {{strategy: pointwise}}
emit: {{engines: [onnxruntime-cpu]}}
"""


def net(domain):
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("dense", ["a", "w"], ["b"], name="dense", domain=domain),
        helper.make_node("Add", ["i", "one"], ["j"], name="next"),
        helper.make_node("pick", ["b", "j"], ["y"], name="pick", domain=domain),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    ports.append(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.int64([1]), "one")]
    graph = helper.make_graph(nodes, "net", ports, [output], weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.fixture
def compiled(with_operators, domain):
    def make(operators=OPERATORS):
        plugins = with_operators(operators.format(domain=domain), NPU.format(domain=domain))
        rng = np.random.default_rng(1)
        data = [{"x": rng.standard_normal((3, 4)).astype(np.float32), "i": np.int64([0, 1])} for _ in range(4)]
        return dovetail.compile(net(domain), "npu", plugins=plugins, data=data)

    return make


def test_a_strategy_for_products_claims_what_a_file_says_is_one(compiled):
    placed = {node.name: node.backend for node in compiled().plan.nodes}
    assert placed["dense"] == "npu" and placed["relu"] == "host"


def test_without_that_it_claims_nothing(compiled):
    placed = {node.name: node.backend for node in compiled(OPERATORS.replace("products: [dense]", "")).plan.nodes}
    assert placed["dense"] == "host"


@pytest.mark.parametrize(("text", "kind"), [("index: {{pick: [places]}}", "index"), ("", "data")])
def test_what_flows_into_a_port_is_known(compiled, text, kind):
    """The Add before `pick` computes indices where the file says that `places` are some."""
    result = compiled(OPERATORS.replace("index: {{pick: [places]}}", text))
    (node,) = [node for node in result.model.graph if node.name == "next"]
    assert node.metadata_props.get("dovetail.kind", node.meta.get("dovetail.kind", "data")) == kind


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[dense]", "[dence]", "yaml:5: the file has no operator 'dence' (did you mean 'dense'?)"),
        ("[places]", "[place]", "yaml:6: pick has no port 'place' (did you mean 'places'?)"),
        ("index:", "indices:", "yaml:6: unknown key 'indices' in kinds"),
        ("  groups", "  group", "yaml:5: unknown key 'group' in facts (did you mean 'groups'?)"),
    ],
)
def test_a_fact_that_is_none_is_named_with_its_line(compiled, old, new, says):
    with pytest.raises(DovetailError) as raised:
        compiled(OPERATORS.replace(old, new, 1))
    assert says in str(raised.value)
