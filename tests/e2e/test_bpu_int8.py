"""Nets of four families for `bpu-int8`, each in one plan with cpu-bf16, and the remedies that `explain` names.

A remedy is named only if it works, and it is the cheapest that does: another test applies it again, on its own.
"""

import os
import random
import shlex

import dovetail
import numpy as np
import pytest
from dovetail.passes import BackendChoice
from dovetail_commands.explain.all_nodes import all_elsewhere

from .nets import NETS, images, net

SLOW = bool(os.environ.get("DOVETAIL_SLOW"))
CASES = [(name, march) for name in NETS for march in ("bernoulli2", "bayes") if SLOW or march == "bayes"]
CASES += [] if SLOW else [("mobilenet", "bernoulli2")]
PLANNED = 1_000_000 if SLOW else 4_000
"""Nodes that are planned for trials: with fewer, not all nodes of the vision transformer are tried."""
MANUAL = {"vit": {"softmax_0", "softmax_1"}}
LEAST = {"mobilenet": 0.99, "yolo": 0.99, "vit": 0.98, "efficientnet": 0.85}
"""The cosine with the outputs in floats: efficientnet multiplies activations of eight bits again and again."""


def backends(march):
    return [f"bpu-int8:march={march}", "cpu-bf16"]


@pytest.mark.generated
@pytest.mark.parametrize(("name", "march"), CASES)
def test_a_net_is_compiled_in_one_plan_and_computes_what_it_did(name, march):
    model, samples = net(name), images(6)
    compiled = dovetail.compile(model, backends(march), data=samples)
    placed = {node.name: node.backend for node in compiled.plan.nodes}
    products = {node.name for node in model.graph.node if node.op_type in ("Conv", "Gemm")}
    products -= {"patches"} if march == "bernoulli2" else set()  # its kernel is 8 by 8
    assert {placed[name] for name in products} == {"bpu-int8"}
    image = images(1, seed=9)[0]
    ours, floats = compiled.run(image), dovetail.compile(model, "host").run(image)
    first = next(iter(floats))
    one, other = ours[first].ravel().astype(np.float64), floats[first].ravel().astype(np.float64)
    assert one @ other / (np.linalg.norm(one) * np.linalg.norm(other)) >= LEAST[name]


@pytest.mark.generated
@pytest.mark.parametrize(("name", "march"), CASES)
def test_every_remedy_that_is_named_moves_its_node(name, march):
    model = net(name)
    plan = dovetail.plan(model, backends(march))
    found = all_elsewhere(plan, plan, model, planned=PLANNED)
    away = [node for group in found.groups for node in group.nodes]
    assert len(away) == sum(node.backend != "bpu-int8" for node in plan.nodes)
    tried = [node for node in away if node.tried]
    assert len(tried) == len(away) or found.untried and name == "vit" and not SLOW
    assert all(node.remedy or node.none for node in tried), "each node has a remedy, or a reason why there is none"
    helped = [node for node in away if node.remedy]
    for node in helped if SLOW else random.Random(name).sample(helped, min(len(helped), 4)):
        after = planned_with(model, march, node.remedy)
        assert {n.backend for n in after.nodes if n.name == node.name} == {"bpu-int8"}, node
    for node in (node for node in helped if "--edit" in node.remedy):
        # A pin is cheaper than an edit, and was no help.
        with pytest.raises((dovetail.errors.DovetailError, AssertionError)):
            after = planned_with(model, march, f"--pin {node.name}=bpu-int8")
            assert {n.backend for n in after.nodes if n.name == node.name} == {"bpu-int8"}


def planned_with(model, march, text):
    """The plan with a change of the request as `explain` writes it."""
    words = shlex.split(text)
    given = {option: [value for name, value in zip(words[::2], words[1::2], strict=True) if name == option]
             for option in ("--pin", "--edit", "--backend")}  # fmt: skip
    for choice in map(BackendChoice.parse, given["--backend"]):
        march = choice.options.get("march", march)
    return dovetail.plan(model, backends(march), pins=given["--pin"], edits=given["--edit"])


def test_the_report_of_a_detector_names_the_tail_and_why():
    model = net("yolo")
    plan = dovetail.plan(model, backends("nash"))
    said = "\n".join(dovetail.explain(plan, all=True, model=model))
    assert "bpu-int8 does not list NonMaxSuppression" in said
    assert "reshape_0 (Reshape): --pin 'reshape_0=bpu-int8'" in said
    assert "concat_3 (Concat): --pin 'concat_3=bpu-int8'" in said


def test_on_bayes_arithmetic_alone_is_left_of_the_tail_of_a_detector():
    model = net("yolo")
    plan = dovetail.plan(model, backends("bayes"))
    elsewhere = [node.name for node in plan.nodes if node.backend != "bpu-int8"]
    assert elsewhere == ["mul_11", "add_1", "nonmaxsuppression_0"]
    assert "add_1 (Add): --pin 'add_1=bpu-int8'" in "\n".join(dovetail.explain(plan, all=True, model=model))


def test_every_softmax_of_a_vision_transformer_is_one_pin_away():
    model = net("vit")
    plan = dovetail.plan(model, backends("bayes"), pins=("type:Softmax=bpu-int8",))
    on = {node.name for node in plan.nodes if node.backend == "bpu-int8"}
    assert MANUAL["vit"] <= on
    assert {"mul_1", "mul_6"} <= on, "the scale before it follows"
