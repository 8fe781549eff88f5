"""What Paddle's mixed precision pass decided for its own programs, and what `fixpoint` decides for the same programs.

Where `test_paddle_decisions` compares networks that were exported to ONNX, and finds operators again by the names that
an exporter gave, this reads the programs themselves: every node of the plan knows the operator that it comes from.
Paddle's black lists become `high` and its white lists `low`.
"""

import json
import re
from collections import Counter
from pathlib import Path

import dovetail
import pytest
import yaml
from dovetail_paddle.frontend import PaddleFrontend
from dovetail_paddle.legacy.reading import read_program
from dovetail_paddle.signatures import plain_name
from dovetail_paddle.translate.transcriber import compat

HERE = Path(__file__).parent
PROGRAMS = HERE / "paddle_programs"
DIFFERENCES = yaml.safe_load((HERE / "paddle_program_differences.yaml").read_text(encoding="utf-8"))
NETS = sorted(path.stem for path in PROGRAMS.glob("legacy/*.pdmodel") if path.stem != "no_params")
# The pass refused no_params.
VARIANTS = ("gpu_fp16", "gpu_fp16_lowio", "gpu_fp16_black")
COMPARED = 741
"""Decisions about operators that compute with floats, in all nets and variants."""


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.mark.generated
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("net", NETS)
def test_the_decisions_are_those_of_the_pass(net, variant, plugins):
    theirs, ours = decisions(net, variant, plugins)
    assert theirs
    different = {output: (theirs[output], ours[output]) for output in theirs if ours[output] != theirs[output]}
    assert different.keys() <= DIFFERENCES.get(net, {}).keys(), different


@pytest.mark.slow
def test_every_difference_that_is_listed_is_one_and_most_decisions_are_compared(plugins):
    compared, different = 0, {}
    for net in NETS:
        for variant in VARIANTS:
            theirs, ours = decisions(net, variant, plugins)
            compared += len(theirs)
            found = {output for output in theirs if ours[output] != theirs[output]}
            if found:
                different.setdefault(net, set()).update(found)
    assert different == {net: set(listed) for net, listed in DIFFERENCES.items()}
    assert compared >= COMPARED


@pytest.mark.parametrize("net", ["cond_net", "lstm", "while_loop"])
def test_a_program_gets_the_same_types_in_both_forms(net, plugins):
    """Paddle 3 translated these programs to `pd_op`; ours of the legacy form is not theirs, node by node."""
    made = []
    for path in (PROGRAMS / "legacy" / f"{net}.pdmodel", PROGRAMS / "translated" / f"{net}.json"):
        nodes = dovetail.plan(path, ["gpu-fp16"], solver="fixpoint", plugins=plugins).nodes
        floats = [node for node in nodes if str(node.precision).startswith("float")]
        # Extents that one form declares are computed from the other.
        computing = [node for node in floats if node.op_type not in ("Identity", "Reshape")]
        made.append(Counter((node.op_type, str(node.precision)) for node in computing))
    assert made[0] == made[1]


def decisions(net, variant, plugins):
    """Low or high of each of Paddle's operators that computes with floats by its first output, there and here."""
    run = json.loads((HERE / "paddle" / f"{net}.json").read_text(encoding="utf-8"))["variants"][variant]
    path = PROGRAMS / "legacy" / f"{net}.pdmodel"
    labels = operators(path)
    white, black = set(run["config"]["white_list"]), set(run["config"]["user_black_list"])
    black |= set(run["config"]["fp32_gpu_kernel_declared"])
    options = {"solver": "fixpoint", "keep_io_types": run["config"]["keep_io_types"], "plugins": plugins}
    planned = {}
    for node in dovetail.plan(path, ["gpu-fp16"], **options).nodes:
        for label in node.origin:
            planned.setdefault(label, []).append(node.name)

    def named(types):
        found = [labels.get(key(operator)) for operator in run["ops"] if operator["type"] in types]
        return tuple(dict.fromkeys(name for label in found if label for name in planned.get(label, ())))

    high = named(black)
    low = tuple(name for name in named(white - black) if name not in high)
    kinds = {}
    for node in dovetail.plan(path, ["gpu-fp16"], **options, low=low, high=high).nodes:
        for label in node.origin:
            kinds.setdefault(label, []).append(node)
    theirs, ours = {}, {}
    for operator in run["ops"]:
        nodes = kinds.get(labels.get(key(operator)), [])
        # Conversions of integers that an operator scales are no part of it.
        found = {str(node.precision) for node in nodes if node.op_type != "Cast" or operator["type"] == "cast"}
        found = {kind for kind in found if kind.startswith("float")}
        if found and operator["precision"] != "folded":
            output = operator["outputs"][0]
            theirs[output] = operator["precision"]
            ours[output] = "low" if found == {"float16"} else "high"  # high where one of its nodes is
    return theirs, ours


def key(operator):
    return operator["block"], operator["type"], tuple(sorted(operator["outputs"]))


def operators(path):
    """The names of `pd_op` operators by block, type and outputs of the legacy operators that they were.

    Both forms are gone through in the order of the program. A variable that is written again has a number after its
    name in the graph.
    """
    waiting = list(nodes_of(PaddleFrontend().read(path).graph))
    found = {}
    program = read_program(path)
    for op in ops_of(program, 0):
        outputs = tuple(sorted(name for given in op.outputs.values() for name in given))
        entry = compat().get(op.type)
        for node in waiting:
            written = {re.sub(r"(?<=.)_\d+$", "", value.name) for value in node.outputs} | {
                v.name for v in node.outputs
            }
            if written & set(outputs) and (entry is None or plain_name(node.op_type).startswith(entry.op)):
                found[op.block, op.type, outputs] = node.name
                waiting.remove(node)
                break
    return found


def nodes_of(graph):
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                yield from nodes_of(attribute.as_graph())
        yield node


def ops_of(program, block):
    for op in program.blocks[block].ops:
        inner = op.attributes.get("sub_block")
        if inner is not None:
            yield from ops_of(program, inner.index)
        yield op
