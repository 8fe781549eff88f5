"""Selectors: the fewest that select some nodes, and none of the others."""

import pytest
from dovetail_verify.accuracy.ranking import shortest_selectors


@pytest.mark.parametrize(
    ("wanted", "others", "found"),
    [
        ("Conv_1 Conv_2 Relu_3", "", ["*"]),
        ("Conv_1 Conv_2", "Relu_1", ["Conv_*"]),
        ("Conv_1", "Relu_1 Conv_2", ["Conv_1"]),
        ("a/Conv b/Conv", "a/Relu b/Relu", ["type:Conv"]),
        ("l1/Conv l1/Relu l2/Conv", "l2/Relu", ["l1*", "l2/Conv"]),
        ("layer4.0.Conv layer4.1.Conv layer4.1.Relu", "layer1.0.Conv layer1.1.Relu", ["layer4*"]),
        ("Conv_1 Conv_12", "Conv_2", ["Conv_1", "Conv_12"]),
        ("", "Conv_1", []),
    ],
)
def test_selectors_are_short(wanted, others, found):
    operators = {name: name.split("/")[-1].split(".")[-1].split("_")[0] for name in (wanted + " " + others).split()}
    assert shortest_selectors(wanted.split(), others.split(), operators) == found


def test_names_that_look_like_selectors_are_quoted():
    operators = {"type:Conv": "Conv", "w[1]": "MatMul", "w[2]": "MatMul"}
    assert shortest_selectors(["type:Conv"], ["w[1]"], operators) == ["name:type:Conv"]
    assert shortest_selectors(["w[1]"], ["w[2]"], operators) == ["w[1]"]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["low", "high"])
def test_a_selector_for_every_node_needs_no_walk_for_each(level, monkeypatch):
    import dovetail
    from dovetail.passes import Request
    from dovetail.planning import selectors
    from dovetail_builder import Builder
    from dovetail_verify.accuracy import groups

    builder = Builder(name="chain")
    value = builder.input("x", "float32", [4])
    for _ in range(300):
        value = builder.Neg(builder.Exp(value))
    builder.output(value, "y")
    model = builder.model()
    names = tuple(node.name for node in model.graph)
    walked = []
    by_name = selectors._by_name
    monkeypatch.setattr(selectors, "_by_name", lambda *args: walked.append(args) or by_name(*args))
    plan = dovetail.plan(model, "cpu-bf16", **{level: names})
    assert len(plan.nodes) == len(names)
    assert set(groups.locked_nodes(model, Request(low=names))) == set(names)
    assert not walked
