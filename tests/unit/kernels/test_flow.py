"""A vendor's operator, defined in YAML: opened, checked, decomposed or taken whole, run and explained."""

import os
import subprocess
import sys

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from onnx import TensorProto, helper

SWISH = """
domain: {domain}
version: 1
operators:
  - op: scaled_swish
    args: (Tensor x, float beta = 1.0)
    output: Tensor(out)
    composite: |
      b = Constant <value_float = @beta> ()
      c = CastLike (b, x)
      d = Mul (x, c)
      s = Sigmoid (d)
      out = Mul (x, s)
  - op: twice
    args: (Tensor x)
    output: Tensor(out)
    composite: |
      y = {domain}.scaled_swish <beta = 2.0> (x)
      out = Add (y, y)
"""

NPU = """
backend: npu
device: npu
opset: 13..26
precision: {{low: float32, high: float32}}
unlisted: refuse
types: {{f: [float32]}}
ops: {{"{domain}::scaled_swish": {{types: f}}, Relu: {{types: f}}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""


def net(domain, op_type="scaled_swish", inputs=("a",), **attributes):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node(op_type, list(inputs), ["y"], name="own", domain=domain, **attributes),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph(nodes, "net", [x], [y]), opset_imports=imports, ir_version=8)


X = np.float32([[-1, 0, 1], [2, 3, 4]])


def swish(x, beta):
    return x / (1 + np.exp(-beta * x))


@pytest.mark.parametrize(("attributes", "beta"), [({}, 1.0), ({"beta": 0.5}, 0.5)])
def test_a_backend_that_does_not_know_it_gets_its_decomposition(with_operators, domain, attributes, beta):
    plugins = with_operators(SWISH.format(domain=domain))
    compiled = dovetail.compile(net(domain, **attributes), "cpu-bf16", plugins=plugins, data={"x": X}, high=("*",))
    assert "cpu-bf16" in compiled.coverage() and "host" not in compiled.coverage()
    expected = swish(np.maximum(X, 0), beta)
    assert np.allclose(compiled.run({"x": X})["y"], expected, atol=1e-5)
    assert compiled.verification.worst_snr_db > 80  # the original runs, too


def test_a_backend_that_lists_it_takes_it_whole(with_operators, domain):
    plugins = with_operators(SWISH.format(domain=domain), NPU.format(domain=domain))
    compiled = dovetail.compile(net(domain, beta=0.5), "npu", plugins=plugins, data={"x": X})
    placed = {node.name: node.backend for node in compiled.plan.nodes}
    assert placed == {"relu": "npu", "own": "npu"}
    assert np.allclose(compiled.run({"x": X})["y"], swish(np.maximum(X, 0), 0.5), atol=1e-6)


def test_an_operator_may_be_made_of_others_of_its_file(with_operators, domain):
    plugins = with_operators(SWISH.format(domain=domain))
    compiled = dovetail.compile(net(domain, "twice"), "cpu-bf16", plugins=plugins, high=("*",))
    assert np.allclose(compiled.run({"x": X})["y"], 2 * swish(np.maximum(X, 0), 2.0), atol=1e-5)


def test_a_result_loads_without_the_file_of_operators(with_operators, domain, tmp_path):
    plugins = with_operators(SWISH.format(domain=domain), NPU.format(domain=domain))
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    compiled.save(tmp_path / "out")
    import onnxruntime as ort

    session = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    assert np.allclose(session.run(None, {"x": X})[0], compiled.run({"x": X})["y"])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"gamma": 1.0}, "has an attribute 'gamma', which scaled_swish-1 does not know"),
        ({"beta": 1}, "has an attribute 'beta' of INT; scaled_swish wants FLOAT"),
        ({"inputs": ("a", "x")}, "has 2 inputs; scaled_swish takes 1"),
    ],
)
def test_a_node_that_does_not_fit_the_signature_is_named(with_operators, domain, model, says):
    plugins = with_operators(SWISH.format(domain=domain))
    with pytest.raises(DovetailError) as raised:
        dovetail.compile(net(domain, **model), "cpu-bf16", plugins=plugins)
    assert "own" in str(raised.value) and says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Sigmoid (d)", "Sigmoyd (d)", "opset 18 has no operator 'Sigmoyd' (did you mean 'Sigmoid'"),
        ("Sigmoid (d)", "Sigmoid (e)", "Sigmoid reads 'e', which nothing computes"),
        ("@beta", "@gamma", "there is no attribute 'gamma'"),
        ("out = Mul", "result = Mul", "nothing computes the output 'out'"),
        ("Mul (x, s)", "Mul (x, s", "composite: "),
        ("s = Sigmoid (d)", "s = {domain}.twice (d)", "composite: scaled_swish > twice > scaled_swish call each other"),
        (".scaled_swish", ".scaled_swosh", "there is no operator 'scaled_swosh' (did you mean 'scaled_swish'?)"),
    ],
)
def test_a_wrong_decomposition_names_file_line_and_operator(with_operators, domain, old, new, says):
    plugins = with_operators(SWISH.replace(old, new, 1).format(domain=domain))
    with pytest.raises(DovetailError) as raised:
        dovetail.plan(net(domain), "cpu-bf16", plugins=plugins)
    assert "ops.yaml:" in raised.value.message and says in raised.value.message


def test_two_distributions_that_define_one_operator_are_both_named(with_operators, domain, tmp_path):
    text = SWISH.format(domain=domain)
    plugins = with_operators(text)
    (tmp_path / "dovetail_inline_other").mkdir()
    (tmp_path / "dovetail_inline_other" / "__init__.py").write_text("")
    (tmp_path / "dovetail_inline_other" / "more.yaml").write_text(text)
    with plugins.registry.on_behalf_of("dovetail-other"):
        plugins.registry.operators("other.ops", "dovetail_inline_other:more.yaml")
    with pytest.raises(DovetailError, match="is defined by .* and by dovetail-other") as raised:
        dovetail.plan(net(domain), "cpu-bf16", plugins=plugins)
    assert "--no-plugin" in raised.value.hint


def test_models_without_such_operators_are_left_alone(with_operators, domain):
    plugins = with_operators(SWISH.format(domain=domain))
    model = dovetail.open(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    ), plugins=plugins)  # fmt: skip
    assert not model.ir.functions and model.revision == 0


def test_two_domains_may_have_an_operator_of_one_name(with_operators, domain):
    """onnx's reference lists schemas by name when it is imported, so this runs in a process of its own."""
    code = f"""
import onnx, dovetail
from dovetail.plugin import load_plugins
from dovetail_kernels.library import register_schemas
plugins = load_plugins()
for name in {plugins_of(with_operators, domain)!r}:
    plugins.registry.operators(name.partition(':')[0], name)
register_schemas(plugins.registry)
import onnx.reference
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def plugins_of(with_operators, domain):
    """The files of two domains with an operator `twice` each, and one called as ONNX's Relu."""
    found = []
    for number in range(2):
        text = SWISH.format(domain=f"{domain}x{number}").replace("twice", "Relu" if number else "scaled_twice")
        plugins = with_operators(text, name=f"acme.{number}")
        found.append(plugins.registry.operators.entry(f"acme.{number}").target)
    return found
