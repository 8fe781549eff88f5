"""Every node has a reason for its backend, and every reason is true of the plan: backends, orders, counts and limits.

A sample of random graphs by default, 1,000 with DOVETAIL_SLOW=1; and the examples on every
installed backend.
"""

import os
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.planning import Remark
from dovetail_report.collect.document import document

from .grown_models import grown
from .reasons import contradicted, miscounted, missing, wrong_reasons

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS, DECODER = EXAMPLES / "digits", EXAMPLES / "decoder" / "model" / "model.onnx"
SEEDS = range(1000 if os.environ.get("DOVETAIL_SLOW") == "1" else 45)
BACKENDS = [["bpu-int8"], ["cpu-bf16"], ["cpu-int8"], ["gpu-fp16"], ["ppl-int8"], ["qnn"], ["tensorrt"], ["acme-aot"],
            ["acme-int8"], ["ppl-int8", "cpu-bf16"], ["cpu-bf16", "ppl-int8"], ["bpu-int8", "gpu-fp16", "cpu-int8"],
            ["ppl-int8:strategy=aggressive", "bpu-int8"], ["cpu-int8", "tensorrt"], ["qnn", "acme-int8"]]  # fmt: skip


def test_no_installed_backend_is_left_out(plugins):
    named = {name.partition(":")[0] for names in BACKENDS for name in names}
    assert set(plugins.registry.backend) <= {*named, "host"}


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_reasons_are_there_and_true(seed, plugins):
    backends = BACKENDS[seed % len(BACKENDS)]
    assert list(wrong_reasons(dovetail.open(grown(seed).model), backends, plugins)) == []


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backends", BACKENDS, ids="+".join)
def test_reasons_of_a_language_model_are_there_and_true(backends, plugins):
    assert list(wrong_reasons(dovetail.open(DECODER), backends, plugins)) == []


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backends", BACKENDS, ids="+".join)
def test_results_are_explained_in_words_and_on_their_page(backends, plugins):
    """The counts of the page and of the explanation are those of the plan, whatever engines refused meanwhile."""
    data = {"image": np.load(DIGITS / "test.npz")["image"][:8]}
    asked = {"data": data, "fix_shapes": "data", "verify": False}
    compiled = dovetail.compile(DIGITS / "digits.onnx", backends, **asked, plugins=plugins)
    plan = compiled.plan
    assert [*missing(plan), *contradicted(plan), *miscounted(plan)] == []
    first = plan.backends[0].name
    away = [node.name for node in plan.nodes if node.backend != first]
    found = dovetail.explain(compiled, all=True, plugins=plugins)
    assert found[0].startswith(f"{first} has {len(plan.nodes) - len(away)} node")
    assert f"; {len(away)} elsewhere" in found[0]
    assert not any("nothing says why" in line for line in found)
    page = document(compiled, plugins=plugins)
    has = {name: sum(node.backend == name for node in plan.nodes) for name in {node.backend for node in plan.nodes}}
    for row in page["obstacles"]:
        reason = page["reasons"][row["reason"]]
        if not reason.get("format"):
            assert row["nodes"] <= len(plan.nodes) - has.get(reason.get("backend", ""), 0), reason


def test_a_reason_that_is_missing_or_false_is_found(plugins):
    """What this file tests with sees what is wrong."""
    plan = dovetail.plan(DIGITS / "digits.onnx", "ppl-int8", plugins=plugins)
    assert [*missing(plan), *contradicted(plan), *miscounted(plan)] == []
    kept = list(plan.remarks)
    plan.remarks = [one for one in kept if one.backend != "ppl-int8"]
    assert len(list(missing(plan))) == sum(node.backend == "host" for node in plan.nodes) > 0
    here = next(node for node in plan.nodes if node.backend == "ppl-int8")
    plan.remarks = [*kept, Remark("missed", here.name, "place", "test", "no", backend="ppl-int8")]
    assert len(list(contradicted(plan))) == 1
    why = "99 of 99 nodes are not on ppl-int8 because of that"
    plan.remarks = [*kept, Remark("analysis", "", "place", "open-extents", why)]
    assert len(list(miscounted(plan))) == 1
