"""The emitter k230-kmodel: compiles regions with nncase, with the ranges that Dovetail measured."""

import importlib.util
import json
import os
from functools import cache

import numpy as np
from dovetail.plugin import Artifact, Call, Emitter, EngineError, RegionModel, Tool
from dovetail_runtime import engine_source

HINT = "pip install 'dovetail-k230[nncase]', or name an environment that has it: DOVETAIL_K230_ENV=PATH"


def missing():
    """Return why nncase cannot be started; empty if it can."""
    if place := os.environ.get("DOVETAIL_K230_ENV"):
        return "" if os.path.exists(place) else f"DOVETAIL_K230_ENV names no folder: {place}"
    lacking = [name for name in ("nncase", "nncase_kpu") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed ({HINT})" if lacking else ""


@cache
def tool():
    """Return the process of nncase for all regions, in this environment or in the one that the variable names.

    .NET takes seconds to start.
    """
    python = os.environ.get("DOVETAIL_K230_ENV", "")
    return Tool.start("dovetail_k230.worker", title="nncase", hint=HINT, python=python, timeout=600)


class KModel(Emitter):
    """Compiles the region in floats, with the ranges of the plan; nncase quantizes by itself."""

    def version(self):
        return "" if missing() else tool().ask("version")

    def emit(self, region, folder):
        if why := missing():
            return Artifact(notes=(f"{region.name} was not compiled: {why}",))
        source = engine_source(RegionModel(region.source))
        made = tool().ask(
            "compile", model=source if isinstance(source, bytes) else source.read_bytes(),
            ranges=json.dumps({"Version": "1.0", "Model": None, "Outputs": schemes_of(region)}),
            weights=region.backend.chosen["weights"],
            shapes=[list(map(int, value.shape)) for value in region.source.graph.inputs],
        )  # fmt: skip
        if not made["functions"]:
            raise EngineError(f"nncase leaves all of {region.name} to the CPU beside the KPU", nodes=region.nodes)
        about = {
            "nodes": region.nodes,
            "inputs": [value.name for value in region.source.graph.inputs],
            "outputs": [value.name for value in region.source.graph.outputs],
            "entering": list(map(border_of, region.inputs)),
            "leaving": [value.source for value in region.outputs],
        }
        (folder / "net.kmodel").write_bytes(made["kmodel"])
        (folder / "net.json").write_text(json.dumps(about))
        facts = {"functions": made["functions"], "bytes": len(made["kmodel"])}
        return Artifact(("net.kmodel", "net.json"), Call(), facts=facts)


def schemes_of(region):
    """Return ranges as nncase's scheme: any for what leaves the program, which the KPU does not round."""
    known = {quantized.value for quantized in region.quantized_values}
    leaving = [value.source for value in region.outputs if value.source not in known]
    return [*map(scheme_of, region.quantized_values), *(scheme(name, "u8", [(-1.0, 1.0)]) for name in leaving)]


def scheme_of(quantized):
    """Return the ranges of a value."""
    parameters, ends = quantized.parameters, np.iinfo(quantized.format.element)
    ranges = [
        ((int(ends.min) - zero) * scale, (int(ends.max) - zero) * scale)
        for scale, zero in zip(parameters.scale, parameters.zero_point)
    ]
    return scheme(quantized.value, {"uint8": "u8", "int8": "i8", "int16": "i16"}[quantized.format.element], ranges)


def scheme(name, dtype, ranges):
    """Return ranges of a value, for all of it or by channel, as nncase reads them."""
    mode = "by_tensor" if len(ranges) == 1 else "by_channel"
    ranges = [{"Min": low, "Max": high, "IsFull": False} for low, high in ranges]
    return {"Name": name, "DataType": dtype, "DataRange": ranges, "DataRangeMode": mode}


def border_of(value):
    """Return the value of the source that enters; in integers, with scale and zero point."""
    if value.parameters is None:
        return [value.source, None]
    return [value.source, [value.parameters.scale[0], value.parameters.zero_point[0]]]
