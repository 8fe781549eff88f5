"""The YAML file written for hb_mapper and hb_compile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.files import seen
from dovetail.ir import name_of

from dovetail_bpu_int8.facts import extents_of
from dovetail_bpu_int8.vendor.calibration import ASYMMETRIC
from dovetail_bpu_int8.vendor.keys import KEYS
from dovetail_bpu_int8.vendor.marches import HB_COMPILE, HB_MAPPER, MARCHES, March

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import Backend, EmittedRegion

    from dovetail_bpu_int8.vendor.settled import SettledNode


_MODEL, _INPUT = "model_parameters", "input_parameters"
_CALIBRATION, _COMPILER = "calibration_parameters", "compiler_parameters"
_GROUPS = (_MODEL, _INPUT, _CALIBRATION, _COMPILER, "custom_op")
_SETTLED = ("node_info", "set_node_data_type", "run_on_cpu", "run_on_bpu", "optimization", "quant_config")
"""Keys for settings of nodes, which are regenerated from the final placement."""
_KEPT_WORDS = ("asymmetric", "bias_correction", "lstm_batch_last", "run_fast")
_WRITTEN_PATHS = ("cal_data_dir", "custom_op_dir")


def config_document(
    region: EmittedRegion,
    recorded: Mapping[str, Any],
    march: March,
    outputs: str,
    changes: Mapping[str, SettledNode],
) -> dict[str, dict[str, Any]]:
    """Build the file as plain data: given settings, required additions, and settings of nodes.

    Args:
        region: The model, with the request.
        recorded: The recorded option.
        march: The BPU.
        outputs: Integer format of the outputs; empty for full-precision sums.
        changes: Settings of each node.
    """
    given = recorded.get("document", {})
    document = {name: _of_tool(name, given.get(name) or {}, march) for name in _GROUPS}
    words = [word for word in _words(document[_CALIBRATION].get("optimization")) if word in _KEPT_WORDS]
    if march.tool == HB_MAPPER and is_asymmetric(region.backend):
        words.append("asymmetric")
    for group in (document[_MODEL], document[_CALIBRATION]):
        for key in _SETTLED:
            group.pop(key, None)
    document[_MODEL] |= {"onnx_model": "./model.onnx", "march": march.name}
    document[_MODEL].setdefault("output_model_file_prefix", "model")
    document[_MODEL].setdefault("working_dir", "./model_output")
    _complete_inputs(document[_INPUT], region.source)
    _complete_calibration(document[_CALIBRATION], region, recorded, march)
    if march.tool == HB_COMPILE:
        document[_CALIBRATION]["quant_config"] = "./quant_config.json"
    else:
        words += [f"set_model_output_{outputs}"] if outputs else []
        if changes and march.names_nodes:
            document[_MODEL]["node_info"] = node_info(changes)
        elif changes:
            document[_CALIBRATION] |= run_on(changes)
    if words:
        document[_CALIBRATION]["optimization"] = ",".join(dict.fromkeys(words))
    document[_COMPILER].setdefault("compile_mode", "latency")
    document[_COMPILER].setdefault("optimize_level", march.levels[-1])
    return {name: group for name, group in document.items() if group}


def node_info(changes: Mapping[str, SettledNode]) -> dict[str, dict[str, str]]:
    """Convert settings of nodes to `node_info`."""
    found: dict[str, dict[str, str]] = {}
    for name, change in changes.items():
        entry = {"ON": change.on} if change.on else {}
        if change.all_inputs:
            entry["InputType"] = change.all_inputs
        entry |= {f"InputType{index}": element for index, element in change.inputs.items()}
        if change.output:
            entry["OutputType"] = change.output
        found[name] = entry
    return found


def is_asymmetric(backend: Backend) -> bool:
    """Check whether activations have a zero point."""
    return ASYMMETRIC.items() <= dict(backend.chosen).items()


def run_on(changes: Mapping[str, SettledNode]) -> dict[str, list[str]]:
    """Return the node lists `run_on_bpu` and `run_on_cpu`, for a tool without `node_info`."""
    found: dict[str, list[str]] = {}
    for name, change in changes.items():
        if change.on:
            found.setdefault(f"run_on_{change.on.lower()}", []).append(name)
    return found


def yaml_text(document: Mapping[str, Mapping[str, Any]], march: March) -> str:
    """Format the file. Its values are JSON, which is valid YAML, so that names of nodes need no other quoting."""
    command = "makertbin --model-type onnx --config" if march.tool == HB_MAPPER else "-c"
    lines = [f"# {march.tool} {command} config.yaml"]
    others = [name for name, other in MARCHES.items() if other.own == march.own and name not in (march.name, other.own)]
    if others:
        lines.append(f"# other BPUs of this architecture: march {', '.join(others)}")
    for group, content in document.items():
        lines.append(f"{group}:")
        for key, value in content.items():
            if isinstance(value, Mapping) and value:
                lines.append(f"  {key}:")
                lines += [f"    {_json(name)}: {_json(entry)}" for name, entry in value.items()]
            elif isinstance(value, list) and not any(";" in name for name in value):
                lines.append(f"  {key}: {_json(';'.join(value))}")
            else:
                lines.append(f"  {key}: {_json(value)}")
    return "\n".join(lines) + "\n"


def _of_tool(group: str, content: Mapping[str, Any], march: March) -> dict[str, Any]:
    """Keep the keys of a group that the march's tool supports; a file may be for another march."""
    kept = {key: value for key, value in content.items() if KEYS[group][key].tool in ("", march.tool)}
    if kept.get("optimize_level", march.levels[-1]) not in march.levels:
        kept["optimize_level"] = march.levels[-1]
    if int(kept.get("core_num") or 1) > march.cores:
        kept["core_num"] = march.cores
    return kept


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _words(value: object) -> list[str]:
    words = value if isinstance(value, list) else str(value or "").replace(";", ",").split(",")
    return [str(word).strip() for word in words]


def _complete_inputs(inputs: dict[str, Any], model: Model) -> None:
    values = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    count = len(values)
    if not str(inputs.get("input_name") or "").strip():
        inputs["input_name"] = ";".join(map(name_of, values))
    shapes = [extents for value in values if (extents := extents_of(value)) is not None]
    if len(shapes) == count:
        inputs["input_shape"] = ";".join("x".join(map(str, extents)) for extents in shapes)
    for key, word in (
        ("input_type_train", "featuremap"),
        ("input_layout_train", "NCHW"),
        ("input_type_rt", "featuremap"),
    ):
        inputs.setdefault(key, ";".join([word] * count))


def _complete_calibration(
    calibration: dict[str, Any], region: EmittedRegion, recorded: Mapping[str, Any], march: March
) -> None:
    """Add the calibration method used here, and make paths absolute."""
    for key in _WRITTEN_PATHS:
        written = calibration.get(key)
        if isinstance(written, str) and written.strip():
            calibration[key] = ";".join(_absolute(word, recorded) for word in written.split(";"))
    if "calibration_type" in calibration or region.context is None:
        return
    choice = next((one for one in region.context.request.backends if one.name == region.backend.name), None)
    observer = choice.observer if choice is not None else None
    options = dict(observer.options) if observer is not None else {}
    if observer is not None and observer.name in ("percentile", "minmax"):
        calibration["calibration_type"] = "max"
        if observer.name == "percentile":
            calibration["max_percentile"] = round(float(cast("str | float", options.get("percentile", 99.99))) / 100, 8)
    elif observer is not None and observer.name == "mix" and march.tool == HB_MAPPER:
        calibration["calibration_type"] = "mix"
    else:
        calibration["calibration_type"] = "kl"
    calibration.setdefault("cal_data_dir", "./calibration_data")
    if march.tool == HB_MAPPER:
        calibration.setdefault("cal_data_type", "float32")


def _absolute(word: str, recorded: Mapping[str, Any]) -> str:
    path = Path(word.strip())
    if path.is_absolute():
        return str(path)
    beside = Path(recorded.get("folder", "")) / path
    return str((beside if seen(beside).exists() else path).absolute())
