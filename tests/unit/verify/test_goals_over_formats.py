"""Goals over the formats of several backends: int8, then the bfloat16 of the next backend, then float32."""

import dovetail
import numpy as np
import pytest
from dovetail_builder import Builder

pytest.importorskip("openvino")


def net():
    """Four products with activations in between; the second has one large row, so that its columns are coarse."""
    rng = np.random.default_rng(3)
    builder = Builder(name="layers")
    value = builder.input("x", "float32", [64, 256])
    for number in range(4):
        weight = rng.normal(0, 0.1, (256, 256)).astype(np.float32)
        if number == 1:
            weight[0] *= 40
        value = builder.Relu(builder.MatMul(value, builder.constant(weight)))
    builder.output(value, "y")
    return builder.model()


DATA = [{"x": np.random.default_rng(n).standard_normal((64, 256)).astype(np.float32)} for n in range(24)]


def backends_of(compiled):
    return {node.backend for node in compiled.plan.nodes}


@pytest.mark.generated
@pytest.mark.parametrize(
    ("goal", "expected"),
    [(12, {"cpu-int8"}), (36, {"cpu-int8", "cpu-bf16"}), (75, {"cpu-bf16"})],
    ids=["int8 is enough", "bfloat16 for some", "float32 for some"],
)
def test_the_cheapest_formats_that_meet_the_goal(goal, expected):
    compiled = dovetail.compile(net(), ["cpu-int8", "cpu-bf16"], data=DATA, min_snr=goal)
    assert compiled.plan.summary.get("accuracy", {}).get("met", True)
    assert compiled.verification.worst_snr_db >= goal
    assert backends_of(compiled) == expected
    left_out = [remark.why for remark in compiled.remarks if remark.rule == "goal" and "left out" in remark.why]
    assert [why.partition(" needs")[0] for why in left_out] == [
        f"cpu-int8 left out: --min-snr {goal}" for _ in range("cpu-int8" not in expected)
    ]


def test_integers_stay_where_floats_are_no_better():
    """Multiples of 0.01 are exact in int8 and not in bfloat16; one batch alone has numbers between the integers."""
    rng = np.random.default_rng(5)
    builder = Builder(name="multiples")
    weight = rng.integers(-127, 128, (64, 64))
    weight[0] = 127
    product = builder.MatMul(builder.input("x", "float32", [16, 64]), builder.constant((weight * 0.01).astype("f4")))
    builder.output(product, "y")
    data = [{"x": rng.integers(-127, 128, (16, 64)).astype(np.float32)} for _ in range(36)]
    data[2]["x"] = np.clip(data[2]["x"] + rng.uniform(-0.5, 0.5, (16, 64)), -127, 127).astype(np.float32)
    data[0]["x"][0, 0] = 127
    backends = ["cpu-int8", "cpu-bf16"]
    compiled = dovetail.compile(builder.model(), backends, data=data, min_snr=56, refine="none")
    assert compiled.plan.summary["accuracy"] | {"met": True, "raised": []} == compiled.plan.summary["accuracy"]
    assert backends_of(compiled) == {"cpu-int8"}


@pytest.mark.slow
def test_a_goal_on_rows_of_logits_chooses_formats_as_well():
    loose = dovetail.compile(net(), ["cpu-int8", "cpu-bf16"], data=DATA, max_kl=1.0)
    assert backends_of(loose) == {"cpu-int8"}
    goal = loose.verification.outputs[0].kl / 20
    strict = dovetail.compile(net(), ["cpu-int8", "cpu-bf16"], data=DATA, max_kl=goal)
    assert strict.verification.outputs[0].kl <= goal and "cpu-bf16" in backends_of(strict)
