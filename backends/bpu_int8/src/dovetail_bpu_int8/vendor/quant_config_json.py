"""The quant_config that is written for hb_compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.settled import Difference


_DEFAULT = "int8"


def quant_config_document(
    config: Mapping[str, Mapping[str, Any]], outputs: str, changes: Mapping[str, Difference], asymmetric: bool = False
) -> dict[str, Any]:
    """The file as plain data.

    A type of a node is that of what it reads: hb_compile, too, derives what nodes give from their readers.

    Args:
        config: The YAML file that names this one.
        outputs: The integers in which the outputs leave the BPU; empty for whole sums.
        changes: What is asked of each node.
        asymmetric: Activations have a zero point.
    """
    calibration = config.get("calibration_parameters", {})
    model: dict[str, Any] = {"all_node_type": _DEFAULT}
    if outputs:
        model["model_output_type"] = outputs
    kind = calibration.get("calibration_type")
    if kind in ("max", "kl", "load"):
        model["activation"] = {"calibration_type": kind}
        if kind == "max" and "max_percentile" in calibration:
            model["activation"]["max_percentile"] = calibration["max_percentile"]
    if asymmetric:
        model.setdefault("activation", {})["asymmetric"] = True
    document: dict[str, Any] = {"model_config": model}
    nodes = {name: entry for name, change in changes.items() if (entry := _entry(change))}
    if nodes:
        document["node_config"] = nodes
    return document


def _entry(change: Difference) -> dict[str, str]:
    entry = {"ON": change.on} if change.on else {}
    if change.output == "float16":
        entry["qtype"] = change.output
    elif change.all_inputs:
        entry["qtype"] = change.all_inputs
    else:
        entry |= {f"input{index}": element for index, element in change.inputs.items()}
    return entry
