"""What PyTorch's CPU autocast really does, recorded, and what our regions do with the same operators.

The recordings (torch 2.13) give the element type of the result for input patterns inside regions.
Float16 regions are left out: torch recorded the lists of the CPU there, and ours are those of CUDA.
"""

import json
from contextlib import ExitStack
from pathlib import Path

import dovetail
import numpy as np
import pytest
import yaml
from dovetail.ir import dtype_name

HERE = Path(__file__).parent
RECORDED = HERE / "autocast" / "runs.json"
OPERATORS = yaml.safe_load((HERE / "autocast_operators.yaml").read_text(encoding="utf-8"))
DIFFERENCES = yaml.safe_load((HERE / "autocast_differences.yaml").read_text(encoding="utf-8"))
SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
REGIONS = {
    "bf16": [("bfloat16", True)],
    "bf16>disabled": [("bfloat16", True), (None, False)],
    "disabled>bf16": [(None, False), ("bfloat16", True)],
}


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text())["runs"]


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


def test_every_recorded_operator_is_looked_at(recorded):
    assert recorded.keys() == OPERATORS.keys() | DIFFERENCES["no counterpart"].keys()


@pytest.mark.generated
@pytest.mark.parametrize("name", OPERATORS)
def test_types_of_results(name, recorded, plugins):
    seen, different = 0, {}
    for pattern, regions in recorded[name].items():
        kinds = pattern.split("_then_")
        # torch promotes to float64 by itself, which ONNX does not, and refuses to promote float16 with bfloat16.
        if kinds[0] not in SHORT or "f64" in kinds and len(kinds) > 1:
            continue
        for region, how in REGIONS.items():
            expected = regions[region]
            # Where nothing is cast, ONNX takes no operands of two types.
            if expected.startswith("error") or region == "bf16>disabled" and len(kinds) > 1:
                continue
            found, seen = ours(OPERATORS[name], kinds, how, plugins), seen + 1
            if found != expected:
                different[f"{pattern} in {region}"] = (found, expected)
    assert seen >= 6
    listed = DIFFERENCES["other types"].get(name)
    assert bool(different) == (listed is not None), different


def ours(entry, kinds, regions, plugins):
    """The element type of the operator's result, for inputs of these types; what is refused, as an error."""
    builder = dovetail.Builder(opset=entry.get("opset", 22))
    first, second = kinds[0], kinds[-1]
    names = {"x": SHORT[first], "y": SHORT[second], "w": "float32"}
    inputs = []
    for index, given in enumerate(entry.get("inputs", ["x"])):
        if given in ("x", "y", "w"):
            inputs.append(builder.input(f"x{index}", names[given], entry.get("shape", [4, 4])))
        else:
            inputs.append(None if given is None else builder.constant(np.array(given)))
    with ExitStack() as stack:
        for precision, enabled in regions:
            stack.enter_context(dovetail.autocast(precision, enabled, plugins=plugins))
        try:
            result = builder.op(entry["op"], inputs, entry.get("attributes"), outputs=entry.get("outputs", 1))
        except dovetail.DovetailError as error:
            return f"refused: {error}"
    return dtype_name((result[0] if isinstance(result, tuple) else result).dtype)
