"""What a quant_config of hb_compile asks for here, level by level, and what it may not ask for."""

import json
from pathlib import Path

import dovetail
import pytest
from dovetail_bpu_int8.vendor.quant_config import LEVELS

from .vendor_files import asked, bpu, model_of, yaml


def written(folder, config):
    path = Path(folder, "quant.json")
    path.write_text(config if isinstance(config, str) else json.dumps(config, indent=2))
    return path


def planned(folder, config, march="nash", **request):
    path = written(folder, config)
    return dovetail.plan(model_of(), f"bpu-int8:march={march}", quant_config=path, **request)


def requests(plan):
    return [(one["node"], one.get("ports", "on"), one.get("format", one.get("on"))) for one in asked(plan)["requests"]]


LEVEL = {  # a level: the requests that it becomes
    "model_config": ({"all_node_type": "int16", "model_output_type": "int16"},
                     [("*", "in", "int16"), ("*", "model_outputs", "int16")]),
    "op_config": ({"Conv": {"qtype": "int16"}}, [("type:Conv", "in", "int16")]),
    "subgraph_config": ({"head": {"inputs": ["p"], "outputs": ["s"], "qtype": "int16"}},
                        [("name:two", "in", "int16"), ("name:soft", "in", "int16")]),
    "node_config": ({"act": {"qtype": "int16"}, "two": {"input0": "int16"}, "soft": {"qtype": "float32"}},
                    [("act", "in", "int16"), ("two", "in0", "int16"), ("soft", "on", "cpu")]),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_levels(tmp_path, level):
    content, expected = LEVEL[level]
    assert requests(planned(tmp_path, {level: content})) == expected


def test_what_is_said_of_less_comes_later_and_wins(tmp_path):
    """Whatever the order in the file."""
    config = {"node_config": {"act": {"qtype": "int8"}}, "op_config": {"Relu": {"qtype": "int16"}}}
    config["model_config"] = {"all_node_type": "int16"}
    found = requests(planned(tmp_path, config))
    assert [node for node, _, _ in found] == ["*", "type:Relu", "act"]
    nodes = {node.name: str(node.precision) for node in planned(tmp_path, config).nodes}
    assert nodes["act"] == "int8[symmetric]"


def test_placements(tmp_path):
    config = {"node_config": {"soft": {"ON": "BPU"}, "one": {"ON": "CPU"}}}
    assert bpu(planned(tmp_path, config)) == "act mid pool two soft three"


def test_a_type_where_a_place_is_expected_is_a_type(tmp_path):
    assert requests(planned(tmp_path, {"node_config": {"act": {"ON": "int16"}}})) == [("act", "in", "int16")]


ACTIVATIONS = {
    "max": ({"calibration_type": "max"}, {"observer": "minmax"}, ""),
    "a share": ({"calibration_type": "max", "max_percentile": 0.9999},
                {"observer": "percentile", "observer.percentile": "99.99"}, ""),
    "kl": ({"calibration_type": "kl"}, {"observer": "kl"}, ""),
    "a search": ({"calibration_type": ["max", "kl"]}, {}, ""),
    "per channel": ({"per_channel": [True, False]}, {}, "activations are not quantized per channel here"),
    "asymmetric": ({"asymmetric": True}, {"activations": "asymmetric"}, ""),
    "both": ({"asymmetric": [True, False]}, {}, "hb_compile tries both"),
}  # fmt: skip


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations(tmp_path, case):

    content, options, note = ACTIVATIONS[case]
    plan = planned(tmp_path, {"model_config": {"activation": content}})
    choice = plan.request.backends[0]
    assert dict(choice.options) == {"march": "nash", **options}
    assert any(note in why for why, _ in asked(plan).get("notes", [])) == bool(note)


def test_bias_correction(tmp_path):
    config = {"model_config": {"weight": {"bias_correction": {"num_sample": 4, "metric": "mse"}}}}
    plan = planned(tmp_path, config)
    assert plan.request.options["refine"] == {"steps": ["bias"]}
    assert "num_sample, metric do nothing" in asked(plan)["notes"][0][0]


@pytest.mark.parametrize("form", ["inside", "beside"])
def test_a_yaml_file_of_hb_compile_has_one_inside_or_names_one(tmp_path, form):
    config = {"op_config": {"Relu": {"qtype": "int16"}}}
    written(tmp_path, config)
    text = json.dumps(config) if form == "inside" else "quant.json"
    path = yaml(tmp_path, march="nash-e", calibration=f"quant_config: {text}")
    assert requests(dovetail.plan(model_of(), hb_yaml=path)) == [("type:Relu", "in", "int16")]


BAD = {  # file: line, a part of the message, a part of the hint
    "no JSON": ("{\n 'a': 1}", 2, "not JSON", ""),
    "key twice": (
        '{"op_config": {"Conv": {"qtype": "int8"},\n "Conv": {"qtype": "int16"}}}',
        2,
        "'Conv' is given twice",
        "",
    ),
    "a list": ("[]", 1, "a list stands where", ""),
    "a number that JSON does not have": ('{"model_config": NaN}', 0, "NaN is no number of JSON", ""),
    "level": ('{\n"node_conf": {}}', 2, "unknown level 'node_conf' (did you mean 'node_config'", ""),
    "YAML of a tool": (
        '{"model_parameters": {"march": "bayes"}}',
        1,
        "belongs to the YAML file",
        "--hb-yaml quant.json",
    ),
    "type of another chip": (
        '{"node_config": {"act":\n {"qtype": "int4"}}}',
        2,
        "int4 does not exist here",
        "int8, int16",
    ),
    "unknown type": (
        '{"op_config": {"Conv": {"qtype": "int61"}}}',
        1,
        "unknown type 'int61' (did you mean 'int16'",
        "",
    ),
    "unknown key": ('{"op_config": {"Conv": {"qtyp": "int16"}}}', 1, "unknown key 'qtyp'", "qtype"),
    "nothing asked": ('{"node_config": {"act": {}}}', 1, "nothing is asked of 'act'", "qtype"),
    "unknown node": ('{"node_config": {\n"atc": {"qtype": "int16"}}}', 2, "has no node 'atc'", "did you mean 'act'"),
    "unknown operator": ('{"op_config": {"Cnov": {"qtype": "int16"}}}', 1, "no operator 'Cnov'", "did you mean 'Conv'"),
    "unknown value": (
        '{"subgraph_config": {"a": {"inputs": ["pp"], "outputs": ["s"], "qtype": "int16"}}}',
        1,
        "no value 'pp'",
        "",
    ),
    "no outputs": ('{"subgraph_config": {"a": {"inputs": ["p"], "qtype": "int16"}}}', 1, "needs outputs", ""),
    "calibration": (
        '{"model_config": {"activation": {"calibration_type": "maxx"}}}',
        1,
        "'maxx' is not known (did you mean 'max'",
        "",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_may_be_wrong_with_a_file(tmp_path, case):
    text, line, message, hint = BAD[case]
    with pytest.raises(dovetail.DovetailError) as error:
        planned(tmp_path, text)
    assert error.value.message.startswith(f"quant.json:{line}:" if line else "quant.json: ")
    assert message in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize("march", ["bernoulli2", "bayes"])
def test_other_tools_read_none(tmp_path, march):
    with pytest.raises(dovetail.DovetailError, match=f"read by hb_compile, and march '{march}' is") as error:
        planned(tmp_path, {"op_config": {}}, march=march)
    assert "march=nash" in error.value.hint


def test_it_needs_the_backend(tmp_path):
    with pytest.raises(dovetail.DovetailError, match="are for bpu-int8, which was not chosen"):
        dovetail.plan(model_of(), "cpu-bf16", quant_config=written(tmp_path, {}))


# --- selectors on the command line


def test_int16_by_selectors():
    plan = dovetail.plan(model_of(), "bpu-int8:march=bayes", int16=["act", "type:Softmax"])
    assert requests(plan) == [("act", "all", "int16"), ("type:Softmax", "all", "int16")]
    assert asked(plan)["requests"][0]["asked"] == "--int16 act"


@pytest.mark.parametrize(
    ("backend", "selector", "message"),
    [
        ("bpu-int8", "act", "march 'bernoulli2' computes in int8 alone"),
        ("bpu-int8:march=bayes", "atc", "no node matches 'atc'"),
        ("cpu-bf16", "act", "are for bpu-int8, which was not chosen"),
    ],
)
def test_int16_where_it_cannot_be(backend, selector, message):
    with pytest.raises(dovetail.DovetailError, match=message):
        dovetail.plan(model_of(), backend, int16=selector)


def test_keys_that_files_of_the_vendor_have(tmp_path):
    path = tmp_path / "quant_config.json"
    document = {
        "model_config": {
            "activation": {"num_bin": [1024, 2048], "max_num_bin": 16384},
            "modelwise_search": {"metric": "mae"},
        },
        "node_config": {"one": {"InputType0": "int16"}},
    }
    path.write_text(json.dumps(document))
    plan = dovetail.plan(model_of(), "bpu-int8:march=nash", quant_config=path)
    notes = " ".join(remark.why for remark in plan.remarks)
    assert "num_bin: histograms have 4096 bins here" in notes and "modelwise_search: nothing is searched for" in notes
    (one,) = [node for node in plan.nodes if node.name == "one"]
    assert "int16" in str(one.ports.get("X", one.precision))
