"""The emitter ethos-u-vela: writes regions as TensorFlow Lite, with the plan's scales, and compiles them with Vela."""

import importlib.util
import os
from functools import cache

from dovetail.plugin import Artifact, Emitter, RegionModel, StandIn, Tool
from dovetail_runtime import engine_source

HINT = "pip install 'dovetail-ethos-u[tools]', or name an environment that has them: DOVETAIL_ETHOS_U_ENV=PATH"


def missing():
    """Return why Vela cannot be started; empty if it can."""
    if place := os.environ.get("DOVETAIL_ETHOS_U_ENV"):
        return "" if os.path.exists(place) else f"DOVETAIL_ETHOS_U_ENV names no folder: {place}"
    lacking = [name for name in ("ethosu", "ai_edge_litert") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed ({HINT})" if lacking else ""


@cache
def tool():
    """Return the process of the tools, in this environment or the one that the variable names."""
    python = os.environ.get("DOVETAIL_ETHOS_U_ENV", "")
    return Tool.start("dovetail_ethos_u.worker", title="Vela", hint=HINT, python=python, timeout=600)


class Vela(Emitter):
    """Compiles the region in int8; the files are the program for the device, and what it was compiled from."""

    def version(self):
        return "" if missing() else tool().ask("version")

    def emit(self, region, folder):
        if why := missing():
            return Artifact(notes=(f"{region.name} was not compiled: {why}",))
        source = engine_source(RegionModel(region.source))
        scales = {
            one.value: [list(one.parameters.scale), list(one.parameters.zero_point)] for one in region.quantized_values
        }
        made = tool().ask(
            "compile", model=source if isinstance(source, bytes) else source.read_bytes(),
            npu=region.backend.chosen["npu"],
            scales=scales,
            inputs=[value.source for value in region.inputs], outputs=[value.source for value in region.outputs],
        )  # fmt: skip
        (folder / "net_vela.tflite").write_bytes(made["program"])
        (folder / "net.tflite").write_bytes(made["source"])
        return Artifact(("net_vela.tflite", "net.tflite"), StandIn(), facts=made["facts"])
