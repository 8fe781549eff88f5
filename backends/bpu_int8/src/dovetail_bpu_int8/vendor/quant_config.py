"""The quant_config of hb_compile: formats by model, operator, subgraph and node, in JSON or inside its YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.text import did_you_mean

from dovetail_bpu_int8.bpu_requests import ALL, MODEL_OUTPUTS, format_request
from dovetail_bpu_int8.vendor.asked import SUBGRAPH, Named, Subgraph, VendorSettings, names_in, origin
from dovetail_bpu_int8.vendor.calibration import ASYMMETRIC, set_observer
from dovetail_bpu_int8.vendor.keys import KEYS
from dovetail_bpu_int8.vendor.marches import HB_COMPILE, March
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Items, Node, Scalar, as_plain, read_json, type_name

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.settled import SettledNode


LEVELS = ("model_config", "op_config", "subgraph_config", "node_config")
"""Levels from the least to the most specific; later levels win."""

_MODEL = ("all_node_type", "model_output_type", "activation", "weight", "search", "modelwise_search")
_BINS = ("num_bin", "max_num_bin")
_ACTIVATION = ("calibration_type", "max_percentile", "per_channel", "asymmetric", *_BINS)
_HERE = ("int8", "int16", "float16", "float32")
_ELSEWHERE = ("int4", "mxint16", "mxint8", "mxfp8", "mxfp4", "mxint4", "nvfp4", "dual-int16", "int16-ec")
_CALIBRATIONS = ("max", "kl", "load")
_INPUT = re.compile(r"(?:input|InputType)(\d+)")  # as in the manual, and as in the vendor's own files
_COMPILES = "it takes effect where hb_compile reads the file"


def read_quant_config_file(path: Path, march: March) -> VendorSettings:
    """Read a JSON file.

    Raises:
        DovetailError: It cannot be read, or requests something unsupported; names the line.
    """
    asked = VendorSettings(march, folder=path.parent)
    tree = read_json(path)
    asked.document = {"quant_config": as_plain(tree)}
    read_quant_config(tree, asked)
    return asked


def read_quant_config(tree: Entries, asked: VendorSettings) -> None:
    """Read the four levels, the least specific first.

    Raises:
        FileError: A key or a type is unknown, or not supported on this BPU.
    """
    for key, value in tree:
        if key.raw in KEYS:
            problem = (
                f"'{key.raw}' belongs to the YAML file of hb_mapper or hb_compile, and this is read as a quant_config"
            )
            raise FileError(key, problem, f"give it as --hb-yaml {key.file}")
        if key.raw not in LEVELS:
            near = did_you_mean(key.raw, LEVELS)
            raise FileError(key, f"unknown level '{key.raw}'{near}", f"the levels are {', '.join(LEVELS)}")
        _mapping(value, key.raw)
    if asked.march.tool != HB_COMPILE:
        raise FileError(
            tree,
            f"a quant_config is read by {HB_COMPILE}, and march '{asked.march.name}' is compiled by {asked.march.tool}",
            "choose --backend bpu-int8:march=nash, or write node_info and optimization into the YAML file",
        )
    for level, read in zip(LEVELS, (_model, _operators, _subgraphs, _nodes), strict=True):
        content = tree.get(level)
        if content is not None:
            read(_mapping(content, level), asked)


def _model(content: Entries, asked: VendorSettings) -> None:
    for key, value in content:
        if key.raw == "all_node_type":
            _request(ALL, value, key.raw, asked)
        elif key.raw == "model_output_type":
            _request(ALL, value, key.raw, asked, MODEL_OUTPUTS)
        elif key.raw == "activation":
            _activation(_mapping(value, key.raw), asked)
        elif key.raw == "weight":
            _weight(_mapping(value, key.raw), asked)
        elif key.raw in ("search", "modelwise_search"):
            asked.note(f"{key.where}, {key.raw}: nothing is searched for here", _COMPILES)
        else:
            raise _unknown(key, "model_config", _MODEL)


def _activation(content: Entries, asked: VendorSettings) -> None:
    for key, value in content:
        if key.raw not in _ACTIVATION:
            raise _unknown(key, "activation", _ACTIVATION)
        if key.raw in _BINS:
            asked.note(f"{key.where}, {key.raw}: histograms have 4096 bins here", _COMPILES)
            continue
        chosen = _alternatives(value) if key.raw in ("per_channel", "asymmetric") else []
        if key.raw == "per_channel" and True in chosen:
            asked.note(f"{key.where}, {key.raw}: activations are not quantized per channel here", _COMPILES)
        elif key.raw == "asymmetric" and len(chosen) > 1:
            why = "hb_compile tries both and keeps the best for the outputs; here activations have no zero point"
            asked.note(f"{key.where}, {key.raw}: {why}", "write true or false")
        elif True in chosen:
            asked.backend |= ASYMMETRIC
    kinds, share = content.get("calibration_type"), content.get("max_percentile")
    if kinds is None:
        return
    words = [word.raw for word in names_in(kinds)]
    for word in words:
        if word not in _CALIBRATIONS:
            near = did_you_mean(word, _CALIBRATIONS)
            problem = f"calibration_type '{word}' is not known{near}"
            raise FileError(kinds, problem, f"it is one of {', '.join(_CALIBRATIONS)}, or a list of them")
    # Of several methods, hb_compile keeps the best for the outputs; the default here does the same.
    kind = words[0] if len(words) == 1 else "default"
    set_observer(kind, _share(share) if kind == "max" else 1.0, kinds, asked)


def _share(node: Node | None) -> float:
    if node is None:
        return 1.0
    shares = [value for value in _alternatives(node) if isinstance(value, (int, float)) and 0 < value <= 1]
    if not shares:
        raise FileError(node, f"max_percentile: {type_name(node)} stands where a share from 0 to 1 is expected")
    return float(shares[0])


def _weight(content: Entries, asked: VendorSettings) -> None:
    for key, value in content:
        if key.raw != "bias_correction":
            raise _unknown(key, "weight", ("bias_correction",))
        if as_plain(value) not in (False, None, {}):
            asked.refine = ("bias",)
            if isinstance(value, Entries) and value.pairs:
                which = ", ".join(name.raw for name, _ in value)
                why = f"biases are corrected on all samples of the data by mean errors; {which} do nothing"
                asked.note(f"{key.where}, bias_correction: {why}", _COMPILES)


def _operators(content: Entries, asked: VendorSettings) -> None:
    for name, value in content:
        named = Named(name.raw, name, "op_config")
        asked.operators.append(named)
        _one(named._replace(selector=f"type:{name.raw}"), value, asked)


def _nodes(content: Entries, asked: VendorSettings) -> None:
    for name, value in content:
        named = Named(name.raw, name, "node_config")
        asked.nodes.append(named)
        _one(named, value, asked)


def _subgraphs(content: Entries, asked: VendorSettings) -> None:
    for name, value in content:
        entries = _mapping(value, f"subgraph_config {name.raw}")
        for key, _ in entries:
            if key.raw not in ("inputs", "outputs", "qtype", "ON"):
                raise _unknown(key, f"subgraph '{name.raw}'", ("inputs", "outputs", "qtype", "ON"))
        ends = []
        for side in ("inputs", "outputs"):
            found = entries.get(side)
            if not isinstance(found, Items) or not found.items:
                raise FileError(found or name, f"subgraph '{name.raw}' needs {side}: a list of names of values")
            ends.append([word.raw for word in names_in(found)])
        selector, where = f"{SUBGRAPH}{name.raw}", f"subgraph_config '{name.raw}'"
        asked.subgraphs.append(Subgraph(name, ends[0], ends[1]))
        if (qtype := entries.get("qtype")) is not None:
            _request(selector, qtype, where, asked)
        if (placed := entries.get("ON")) is not None:
            if placed.text("ON").upper() != "CPU":
                problem = f"{where}: ON is CPU for a subgraph; single nodes can be asked onto the BPU"
                raise FileError(placed, problem, "name them under node_config")
            asked.requests.append(format_request(selector, origin(placed, where)))


def _one(named: Named, value: Node, asked: VendorSettings) -> None:
    content = _mapping(value, f"{named.key} '{named.selector}'")
    keys = [key.raw for key, _ in content]
    for key, given in content:
        where = f"{named.key} {key.raw}"
        if key.raw == "qtype":
            _request(named.selector, given, where, asked)
        elif key.raw == "ON":
            _on(named, given, where, asked)
        elif found := _INPUT.fullmatch(key.raw):
            _request(named.selector, given, where, asked, f"in{found[1]}")
        else:
            raise _unknown(key, f"{named.key} '{named.selector}'", ("qtype", "ON", "input0", "input1"))
    if not keys:
        raise FileError(content, f"{named.key}: nothing is asked of '{named.selector}'", "write qtype, ON or input0")


def _on(named: Named, given: Node, where: str, asked: VendorSettings) -> None:
    word = given.text("ON")
    if word.upper() in ("BPU", "CPU"):
        asked.place(named._replace(place=given, key=where), word.upper())
    else:  # the vendor's own examples have a type here
        _request(named.selector, given, where, asked)


def _request(selector: str, node: Node, key: str, asked: VendorSettings, ports: str = "") -> None:
    """Request a type. A node's type is that of its inputs; its output type follows from the readers."""
    qtype = node.text(key)
    if qtype in _ELSEWHERE:
        raise FileError(node, f"{key}: {qtype} does not exist here", f"write one of {', '.join(_HERE)}")
    if qtype not in _HERE:
        near = did_you_mean(qtype, _HERE)
        raise FileError(node, f"{key}: unknown type '{qtype}'{near}", f"write one of {', '.join(_HERE)}")
    asked.request(selector, node, key, qtype, ports or ("in" if qtype.startswith("int") else "all"))


def _alternatives(node: Node) -> list[object]:
    plain = as_plain(node)
    return plain if isinstance(plain, list) else [plain]


def _mapping(node: Node, what: str) -> Entries:
    if not isinstance(node, Entries):
        raise FileError(node, f"{what}: {type_name(node)} stands where 'key: value' pairs are expected")
    return node


def _unknown(key: Scalar, what: str, known: tuple[str, ...]) -> FileError:
    near = did_you_mean(key.raw, known)
    return FileError(key, f"unknown key '{key.raw}' in {what}{near}", f"its keys are {', '.join(known)}")


_DEFAULT = "int8"


def quant_config_document(
    config: Mapping[str, Mapping[str, Any]], outputs: str, changes: Mapping[str, SettledNode], asymmetric: bool = False
) -> dict[str, Any]:
    """Build the file as plain data.

    A node's type is that of its inputs: hb_compile, too, derives output types from the readers.

    Args:
        config: The YAML file that refers to this one.
        outputs: Integer format of the outputs; empty for full-precision sums.
        changes: Settings of each node.
        asymmetric: Whether activations have a zero point.
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


def _entry(change: SettledNode) -> dict[str, str]:
    entry = {"ON": change.on} if change.on else {}
    if change.output == "float16":
        entry["qtype"] = change.output
    elif change.all_inputs:
        entry["qtype"] = change.all_inputs
    else:
        entry |= {f"input{index}": element for index, element in change.inputs.items()}
    return entry
