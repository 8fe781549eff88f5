"""What holds after each stage is checked there, and the page on stages lists it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import FLOAT32, Format
from dovetail.passes import Pass
from dovetail.planning import get_placement, set_placement
from dovetail.plugin import Invariant, load_plugins
from dovetail.plugin.loading import invariants_of

ROOT = Path(__file__).parents[3]
DIGITS, DATA = ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test.npz"
STAGES = ("place", "type", "calibrate", "join", "outline")


@dataclass(frozen=True)
class Breaks(Pass):
    """Breaks what the stage before has established; it runs last there."""

    name = "zz-breaks"
    where: str = ""

    def run(self, model, ctx):
        first = next(iter(model.graph))
        placement = get_placement(first)
        match self.where:
            case "place":
                set_placement(first, None)
            case "type":
                set_placement(first, replace(placement, precision=None, ports={}))
            case "calibrate":
                values = ctx.outcome.quantized_values
                values[0] = replace(values[0], parameters=None)
            case "join":
                node = next(node for node in model.graph if get_placement(node).precision is FLOAT32)
                set_placement(node, replace(get_placement(node), precision=Format.of("bfloat16")))
            case "outline":
                set_placement(first, replace(placement, region=None))
        return True


@pytest.mark.parametrize("stage", STAGES)
def test_a_pass_that_breaks_what_holds_after_its_stage_is_an_error(stage):
    plugins = load_plugins()
    table = plugins.registry.pass_
    staged = [name for name in table if table[name].stage == stage]
    last = type("Breaks", (Breaks,), {"stage": stage, "after": tuple(staged)})
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(DIGITS, ["cpu-int8", "cpu-bf16"], data=DATA, passes=[last(stage)], plugins=plugins)
    (invariant,) = invariants_of(plugins.registry, stage)
    assert f"after the stage '{stage}', {invariant.text}, but " in caught.value.message
    assert caught.value.hint.startswith("this is a defect of one of its passes: ") and "zz-breaks" in caught.value.hint


def test_nothing_is_checked_where_verification_is_off():
    class Never(Invariant):
        stage = "place"
        text = "nothing is right"

        def violations(self, model, ctx):
            yield "it is not"

    plugins = load_plugins()
    globals()["Never"] = Never
    plugins.registry.invariant("never", f"{__name__}:Never")
    with pytest.raises(DovetailError, match="after the stage 'place', nothing is right, but it is not"):
        dovetail.compile(DIGITS, "cpu-bf16", plugins=plugins)
    dovetail.compile(DIGITS, "cpu-bf16", plugins=plugins, instrumentation=dovetail.Instrumentation(verify_each=False))


def test_the_page_lists_them():
    text = (ROOT / "docs/reference/compilation.md").read_text().partition("## What holds after each stage")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| `(.*?)` \|$", text, re.MULTILINE)
    registry = load_plugins().registry
    found = [(one.stage, one.text, type(one).__module__) for stage in STAGES for one in invariants_of(registry, stage)]
    assert rows == found
    assert len(registry.invariant) == len(found)
