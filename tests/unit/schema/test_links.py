"""Value links: which outputs the numbers of an input reach, for every operator that onnx knows."""

from importlib.resources import files

import pytest
from dovetail_onnx.native_runtime import native_state
from dovetail_onnx.signatures import find_signature
from dovetail_schemas import load_operator_facts
from dovetail_schemas.errors import SchemaError
from dovetail_schemas.operators import FLOATS
from onnx import defs

FACTS = load_operator_facts(files("dovetail_schemas") / "ops" / "onnx.yaml")
VERSIONS = sorted(
    {(schema.domain, schema.name, schema.since_version) for schema in defs.get_all_schemas_with_history()}
)

# Inputs that may be floats, and whose numbers reach no output of the operator although it has one that may be a float.
CONTROLS = {
    "Adagrad.R", "Adam.R", "Bernoulli.input", "CastLike.target_type", "Clip.max", "Clip.min", "DeformConv.offset",
    "DequantizeLinear.x_scale", "DequantizeLinear.x_zero_point", "Dropout.ratio", "DynamicQuantizeLinear.x",
    "EyeLike.input", "GridSample.grid", "MaxRoiPool.rois", "MelWeightMatrix.lower_edge_hertz",
    "MelWeightMatrix.upper_edge_hertz", "Momentum.R", "OneHot.depth", "OneHot.indices", "Pad.constant_value",
    "QLinearConv.w_scale", "QLinearConv.x_scale", "QLinearConv.y_scale", "QLinearMatMul.a_scale",
    "QLinearMatMul.a_zero_point", "QLinearMatMul.b_scale", "QLinearMatMul.b_zero_point", "QLinearMatMul.y_scale",
    "QLinearMatMul.y_zero_point", "QuantizeLinear.y_scale", "QuantizeLinear.y_zero_point", "RandomNormalLike.input",
    "RandomUniformLike.input", "Resize.roi", "Resize.scales", "RoiAlign.rois", "Split.split", "Upsample.scales",
}  # fmt: skip
# Outputs that may be floats, and that nothing is carried to.
MADE = {"DynamicQuantizeLinear.y_scale"}


def links(domain, op_type, version):
    """The links between ports that may be floats, those inputs, and those outputs."""
    signature = find_signature(domain, op_type, version)
    sources = [port.name for port in signature.inputs if may_be_float(port)]
    targets = [port.name for port in signature.outputs if may_be_float(port)]
    found = {(a, b) for a in sources for b in targets if FACTS.carries(domain, op_type, a, b, integer=False)}
    return found, sources, targets


def may_be_float(port):
    return bool(port.dtypes & FLOATS) or any("seq" in kind or "optional" in kind for kind in port.allowed)


@pytest.mark.parametrize("domain", sorted({domain for domain, _, _ in VERSIONS}))
def test_numbers_reach_an_output_unless_they_only_control_it(domain):
    controls, made = set(), set()
    for _, op_type, version in [known for known in VERSIONS if known[0] == domain]:
        found, sources, targets = links(domain, op_type, version)
        kinds = {port: FACTS.output_kind(domain, op_type, port) for port in targets}
        values = [port for port in targets if kinds[port] in ("data", "state")]
        controls |= {f"{op_type}.{port}" for port in sources if values and not any(a == port for a, _ in found)}
        reached = {b for _, b in found}
        inputs = [port for port in sources if f"{op_type}.{port}" not in CONTROLS]
        made |= {f"{op_type}.{port}" for port in values if inputs and port not in reached}
    assert controls <= CONTROLS
    assert made <= MADE


def test_operators_of_onnx_runtime_have_the_ports_that_facts_name():
    """The reader of facts knows onnx's operators only, and takes any name for those of other domains."""
    schemas = {(one.domain, one.name): one for one in native_state().get_all_operator_schema()}
    named = set(FACTS._inputs) | set(FACTS._outputs) | set(FACTS._links)
    for domain, op_type, port in sorted(one for one in named if one[0] == "com.microsoft"):
        schema = schemas[domain, op_type]
        assert port in {one.name for one in (*schema.inputs, *schema.outputs)}, f"{op_type}.{port}"
    targets = {(*key[:2], port) for key, ports in FACTS._links.items() if key[0] == "com.microsoft" for port in ports}
    for domain, op_type, port in sorted(targets):
        assert port in {one.name for one in schemas[domain, op_type].outputs}, f"{op_type}.{port}"


def test_every_exception_is_one_of_some_version():
    found = set()
    for domain, op_type, version in VERSIONS:
        carried, sources, _ = links(domain, op_type, version)
        found |= {f"{op_type}.{port}" for port in sources if not any(source == port for source, _ in carried)}
    assert CONTROLS - found == set()


def test_shapes_and_indices_carry_nothing():
    for domain, op_type, version in VERSIONS:
        signature = find_signature(domain, op_type, version)
        for source in signature.inputs:
            if FACTS.input_kind(domain, op_type, source.name) in ("shape", "index"):
                assert not any(FACTS.carries(domain, op_type, source.name, port.name) for port in signature.outputs)


@pytest.mark.parametrize(
    ("op_type", "source", "target", "carried"),
    [
        ("Conv", "X", "Y", True), ("Conv", "B", "Y", True), ("Reshape", "data", "reshaped", True),
        ("Reshape", "shape", "reshaped", False), ("Clip", "min", "output", False), ("Where", "X", "output", True),
        ("Where", "condition", "output", False), ("Split", "input", "outputs", True), ("TopK", "X", "Values", True),
        ("TopK", "X", "Indices", False), ("LSTM", "initial_h", "Y_h", True), ("LSTM", "X", "Y_c", True),
        ("NonMaxSuppression", "scores", "selected_indices", False), ("ScatterND", "updates", "output", True),
        ("Attention", "K", "present_key", True), ("Attention", "V", "present_key", False),
        ("LayerNormalization", "Scale", "Mean", False), ("NoSuchOperator", "in0", "out0", True),
    ],
)  # fmt: skip
def test_a_link(op_type, source, target, carried):
    assert FACTS.carries("", op_type, source, target, integer=False) is carried
    assert FACTS.carries("ai.onnx", op_type, source, target, integer=False) is carried


def test_a_range_of_floats_carries_its_start():
    assert FACTS.carries("", "Range", "start", "output", integer=False)
    assert not FACTS.carries("", "Range", "start", "output")


@pytest.mark.parametrize("port", ["initial_h", "initial_c"])
def test_a_state_is_told_from_data(port):
    assert FACTS.input_kind("", "LSTM", port) == "state"
    assert FACTS.output_kind("", "LSTM", "Y_h") == "state"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("links: {Clip: {mni: []}}", "onnx.yaml:1: Clip has no input 'mni' (did you mean 'min'?)"),
        ("links: {Clip: {min: [outptu]}}", "onnx.yaml:1: Clip has no output 'outptu' (did you mean 'output'?)"),
        ("links: {Clp: {min: []}}", "onnx.yaml:1: unknown operator 'Clp' (did you mean 'Clip'?)"),
        ("links: {Clip: [min]}", "onnx.yaml:1: links of Clip: 'key: value' pairs are expected"),
        ("kinds: {shape: {LSTM: [Y_h]}, state: {LSTM: [Y_h]}}", "onnx.yaml:1: 'Y_h' of LSTM is given two kinds"),
    ],
)
def test_what_is_wrong_in_a_file_of_facts(text, message, tmp_path):
    path = tmp_path / "onnx.yaml"
    path.write_text(text)
    with pytest.raises(SchemaError) as raised:
        load_operator_facts(path)
    assert message in str(raised.value)
