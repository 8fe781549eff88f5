"""What Paddle's mixed precision pass decided for small networks, and what `fixpoint` decides for their ONNX forms.

Paddle's black lists become `high` and its white lists `low`, by the names of the nodes that its exporter made of each
operator. The exporter calls the value of the n-th operator of a type `p2o.pd_op.TYPE.N.0`, in the names of the newer
intermediate representation, and the outputs of the network `fetch_name_N`.
"""

import json
import re
from collections import Counter
from pathlib import Path

import dovetail
import onnx
import pytest
import yaml

RECORDED = Path(__file__).parent / "paddle"
DIFFERENCES = yaml.safe_load((Path(__file__).parent / "paddle_differences.yaml").read_text(encoding="utf-8"))
NETS = [
    "activations", "attn_block", "conv_bn_relu", "dropout_test", "embed_fc", "fp64_path", "interp", "lstm",
    "multihead_cls", "reduces", "scale_range", "shape_moves", "shared_weight", "stack_expand", "while_loop",
]  # fmt: skip
# Without decisions: no_params was refused by the pass; black_listed, cond_net and mixed could not be exported, and what
# was exported of ew_axis and norm_share is not valid ONNX.
VARIANTS = ("gpu_fp16", "gpu_fp16_lowio", "gpu_fp16_black")
# operators by their new names, where these differ by more than an `elementwise_`, a `reduce_` or a number
RENAMED = {
    "mul": "matmul", "matmul_v2": "matmul", "elementwise_mul": "multiply", "elementwise_sub": "subtract",
    "elementwise_max": "maximum", "elementwise_min": "minimum", "elementwise_div": "divide",
    "batch_norm": "batch_norm_", "elementwise_pow": "elementwise_pow",
    "assign": "assign_out_", "hard_swish": "hardswish", "hard_sigmoid": "hardsigmoid", "sum": "add_n",
    "flatten_contiguous_range": "flatten", "lookup_table_v2": "embedding", "bilinear_interp_v2": "bilinear_interp",
    "nearest_interp_v2": "nearest_interp", "arg_max": "argmax", "tril_triu": "tril", "split": "split_with_num",
}  # fmt: skip
VALUE = re.compile(r"p2o\.(sub_block\.)?pd_op\..+|fetch_name_\d+")


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.mark.generated
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("net", NETS)
def test_the_decisions_are_those_of_the_pass(net, variant, plugins):
    theirs, ours, missing = decisions(net, variant, plugins)
    listed = DIFFERENCES.get(net, {})
    assert len(theirs) >= 7, f"{missing} operators have no counterpart"
    different = {output: (theirs[output], ours[output]) for output in theirs if ours[output] != theirs[output]}
    assert different.keys() <= listed.keys(), different


@pytest.mark.parametrize("net", DIFFERENCES)
def test_every_difference_that_is_listed_is_one(net, plugins):
    """In some variant: where the user lists an operator, both obey."""
    found = set()
    for variant in VARIANTS:
        theirs, ours, _ = decisions(net, variant, plugins)
        found |= {output for output in theirs if ours[output] != theirs[output]}
    assert found == DIFFERENCES[net].keys()


def decisions(net, variant, plugins):
    """Low or high of each of Paddle's operators by its first output, there and here; how many have no counterpart."""
    recorded = json.loads((RECORDED / f"{net}.json").read_text(encoding="utf-8"))
    path = RECORDED / f"{net}.onnx"
    run = recorded["variants"][variant]
    made = counterparts(run["ops"], recorded["outputs"], onnx.load(path).graph)
    operators = [operator for operator in run["ops"] if operator["outputs"] and operator["outputs"][0] in made]
    white, black = set(run["config"]["white_list"]), set(run["config"]["user_black_list"])
    black |= set(run["config"]["fp32_gpu_kernel_declared"])
    options = {"solver": "fixpoint", "keep_io_types": run["config"]["keep_io_types"], "plugins": plugins}
    known = {node.name: node for node in dovetail.plan(path, ["gpu-fp16"], **options).nodes}

    def named(types):
        names = [made[operator["outputs"][0]] for operator in operators if operator["type"] in types]
        return tuple(dict.fromkeys(name for group in names for name in group if name in known))

    lists = {"low": named(white - black), "high": named(black)}
    planned = {node.name: node for node in dovetail.plan(path, ["gpu-fp16"], **options, **lists).nodes}
    theirs, ours = {}, {}
    for operator in operators:
        output = operator["outputs"][0]
        nodes = [planned[name] for name in made[output] if name in planned]
        # The exporter's own conversions, of integers that it scales, are no part of an operator.
        kinds = {str(node.precision) for node in nodes if node.op_type != "Cast" or operator["type"] == "cast"}
        kinds = {kind for kind in kinds if kind.startswith("float")}
        if kinds and operator["precision"] != "folded":
            theirs[output] = operator["precision"]
            ours[output] = "low" if kinds == {"float16"} else "high"  # high where one of its nodes is
    return theirs, ours, len(run["ops"]) - len(theirs)


def counterparts(operators, outputs, graph):
    """The names of the ONNX nodes that each operator became, by its first output."""
    nodes = [*graph.node, *(inner for node in graph.node for body in node.attribute for inner in body.g.node)]
    producers = {output: node for node in nodes for output in node.output}
    numbers, found = Counter(), {}
    for operator in operators:
        if not operator["outputs"]:
            continue
        kind, place = new_name(operator["type"]), "sub_block.pd_op" if operator["block"] else "pd_op"
        inner = ()
        if operator["type"] == "mul":  # flattens both sides and reshapes the product
            inner = tuple(f"p2o.{place}.reshape.{numbers[place, 'reshape'] + position}.0" for position in range(3))
            numbers[place, "reshape"] += 3
        value = f"p2o.{place}.{kind}.{numbers[place, kind]}.0"
        numbers[place, kind] += 1
        for position, output in enumerate(outputs):
            if output in operator["outputs"]:
                value = f"fetch_name_{position}"
        if value in producers:
            found[operator["outputs"][0]] = [
                name for part in (value, *inner) if part in producers for name in behind(part, producers)
            ]
    return found


def behind(value, producers):
    """The names of the nodes between `value` and the values of other operators."""
    names, waiting = [], [value]
    while waiting:
        current = waiting.pop()
        node = producers.get(current)
        if node is None or current != value and VALUE.fullmatch(current):
            continue
        names.append(node.name)
        waiting.extend(node.input)
    return names


def new_name(kind):
    """The name of an operator in the newer representation."""
    return RENAMED.get(kind) or re.sub(r"2$|_v2$", "", kind.removeprefix("elementwise_").removeprefix("reduce_"))
