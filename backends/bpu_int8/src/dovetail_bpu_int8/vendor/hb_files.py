"""The emitter `hb-files`: the float32 model, and files that make the vendor's tools reproduce the placement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dovetail.compiler import Driver
from dovetail.passes import BackendChoice, Context, Request
from dovetail.plugin import Artifact, DovetailError, Emitter
from dovetail_transforms import lower

from dovetail_bpu_int8.bpu_requests import ALL, MODEL_OUTPUTS, OPTION, REQUESTS, format_request, recorded_entry
from dovetail_bpu_int8.vendor.config_yaml import config_document, is_asymmetric, yaml_text
from dovetail_bpu_int8.vendor.marches import HB_COMPILE, MARCHES, March
from dovetail_bpu_int8.vendor.quant_config import quant_config_document
from dovetail_bpu_int8.vendor.settled import differences, model_output_format, settled_by, settled_in, thresholds

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.ir import Model
    from dovetail.planning import Plan
    from dovetail.plugin import EmittedRegion

    from dovetail_bpu_int8.vendor.settled import Settled, SettledNode


MODEL, CONFIG, QUANT_CONFIG, THRESHOLDS = "model.onnx", "config.yaml", "quant_config.json", "thresholds.json"
_MARCH = "march"
_FIRST_OF = {"nash": "nash-e"}


class HbFiles(Emitter):
    """Writes the whole model for the vendor's tools, with the files that hb_mapper or hb_compile read.

    `model.onnx` is in float32, at an opset that the tool reads. `config.yaml` is the given file, or one generated from
    the request, and overrides the tool's default placement where it differs; for hb_compile `quant_config.json` does
    so. `thresholds.json` has the threshold of each node, for comparison with the tool's log.
    """

    whole = True

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the files.

        The tool's defaults are found by planning the written model without any request about nodes. If they differ from
        the actual placement, the written files are planned, too, and nodes that they do not place as intended are
        noted.
        """
        recorded = region.context.request.options.get(OPTION, {}) if region.context is not None else {}
        march = _march(region, recorded)
        model, notes = _written(region)
        settled = settled_in(model, region.backend.name)
        for node in model.nodes():
            node.meta.clear()  # the placement means nothing to the vendor's tools
        model.save(folder / MODEL)
        outputs = model_output_format(model, settled) or _asked_of_outputs(recorded)
        changes: Mapping[str, SettledNode] = {}
        by_default: Mapping[str, Settled] = {}
        if region.context is not None:
            try:
                by_default = _by_default(model, region, outputs)
                changes = differences(settled, by_default)
            except DovetailError as error:
                notes.append(f"{CONFIG} says nothing of single nodes: {error.message}")
        document = config_document(region, recorded, march, outputs, changes)
        (folder / CONFIG).write_text(yaml_text(document, march), encoding="utf-8")
        if march.tool == HB_COMPILE:
            written = quant_config_document(document, outputs, changes, is_asymmetric(region.backend))
            _write_json(folder / QUANT_CONFIG, written)
        _write_json(folder / THRESHOLDS, thresholds(model, region.quantized_values, march.name))
        if any(settled.get(name, one) != one for name, one in by_default.items()):
            notes += _read_back(folder, model, region, settled)
        return Artifact(tuple(sorted(path.name for path in folder.iterdir())), notes=tuple(notes))


def _march(region: EmittedRegion, recorded: Mapping[str, Any]) -> March:
    """Return the BPU under the given vendor name, unless the backend was chosen for another one.

    Without a vendor name, it is the first of this architecture that the tool supports.
    """
    chosen = region.backend.chosen.get(_MARCH, "")
    named = MARCHES.get(recorded.get(_MARCH, ""))
    if named is not None and named.own == chosen:
        return named
    return MARCHES[_FIRST_OF.get(chosen, chosen)]


def _written(region: EmittedRegion) -> tuple[Model, list[str]]:
    """Lower the model to an opset that the tool reads; unchanged, with a note, if a node cannot be lowered."""
    highest = region.backend.opset[1]
    try:
        return lower(region.source, highest).model, []
    except DovetailError as error:
        model = region.source.clone()
        why = f"the vendor's tool reads opset {highest} at the highest, and {MODEL} has opset {model.opset}"
        return model, [f"{why}: {error.message}"]


class _Defaults:
    """The tool's default settings by the nodes that they are for; those of the last model alone."""

    def __init__(self) -> None:
        self.by_nodes: dict[tuple[object, ...], Mapping[str, Settled]] = {}


def _by_default(model: Model, region: EmittedRegion, outputs: str) -> Mapping[str, Settled]:
    """Return the tool's default settings, cached for all rounds and trials of one compilation."""
    key = (outputs, tuple((node.name, node.op_type) for node in model.graph))
    known = cast("Context", region.context).kept.of(_Defaults).by_nodes
    if key not in known:
        known.clear()
        known[key] = settled_by(_plan(model, region, outputs), model, region.backend.name)
    return known[key]


def _plan(model: Model, region: EmittedRegion, outputs: str) -> Plan:
    """Plan a model for the BPU alone, without settings of single nodes."""
    options = {_MARCH: region.backend.chosen[_MARCH]}
    requests = [recorded_entry(format_request(ALL, CONFIG, outputs, MODEL_OUTPUTS))] if outputs else []
    request = Request((BackendChoice(region.backend.name, options),), options={OPTION: {REQUESTS: requests}})
    return _planned(model, request, region)


def _planned(model: Model, request: Request, region: EmittedRegion) -> Plan:
    ctx = Context(request, plugins=cast("Context", region.context).plugins)
    ctx.load_backends()
    return Driver(model.clone(), ctx).decide()[1]


def _read_back(folder: Path, model: Model, region: EmittedRegion, settled: Mapping[str, Settled]) -> list[str]:
    """Read the written files back, and return notes about nodes that they place differently."""
    from dovetail_bpu_int8.vendor.request import changed

    try:
        request = replace(changed(Request(), model, hb_yaml=folder / CONFIG), data=None)
        plan = _planned(model, request, region)
    except DovetailError as error:
        return [f"{CONFIG}, read back, is refused: {error.message}"]
    again = settled_by(plan, model, region.backend.name)
    moved = [name for name, one in again.items() if name in settled and one.on_bpu != settled[name].on_bpu]
    wider = [name for name, one in again.items() if name in settled and name not in moved and one != settled[name]]
    notes = []
    if moved:
        notes.append(f"{CONFIG}, read back, places {_named(moved)} elsewhere")
    if wider:
        notes.append(f"{CONFIG}, read back, gives {_named(wider)} other formats")
    return notes


def _named(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} others"


def _asked_of_outputs(recorded: Mapping[str, Any]) -> str:
    """Return the requested integer format of outputs, which allows an activation to be the last node."""
    asked = [one["format"] for one in recorded.get(REQUESTS, ()) if one.get("ports") == MODEL_OUTPUTS]
    return asked[-1] if asked else ""


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
