"""The emitter iree-vmfb: compiles regions with IREE into programs for CPUs."""

import importlib.util
import os
from functools import cache

from dovetail.plugin import Artifact, Emitter, RegionModel, StandIn, Tool
from dovetail_runtime import engine_source
from dovetail_transforms import lower

HINT = "pip install 'dovetail-iree[tools]', or name an environment that has them: DOVETAIL_IREE_ENV=PATH"
OPSET = 22


def missing():
    """Return why IREE cannot be started; empty if it can."""
    if place := os.environ.get("DOVETAIL_IREE_ENV"):
        return "" if os.path.exists(place) else f"DOVETAIL_IREE_ENV names no folder: {place}"
    return "" if importlib.util.find_spec("iree") else f"IREE is not installed ({HINT})"


@cache
def tool():
    """Return the process that compiles and runs all regions, in this environment or the one that the variable names."""
    python = os.environ.get("DOVETAIL_IREE_ENV", "")
    return Tool.start("dovetail_iree.worker", title="IREE", hint=HINT, python=python, timeout=600)


class Vmfb(Emitter):
    """Compiles a region into a module of IREE's virtual machine."""

    matches_plan = True  # float32 without fast-math: `verify --programs` measures it

    def version(self):
        return "" if missing() else tool().ask("version")

    def emit(self, region, folder):
        if why := missing():
            return Artifact(notes=(f"{region.name} was not compiled: {why}",))
        source = engine_source(RegionModel(lower(region.model, OPSET).model))
        made = tool().ask(
            "compile", model=source if isinstance(source, bytes) else source.read_bytes(),
            cpu=region.backend.chosen["target_cpu"],
        )  # fmt: skip
        (folder / "net.vmfb").write_bytes(made["program"])
        facts = {"bytes": len(made["program"]), "dispatches": made["dispatches"]}
        return Artifact(("net.vmfb",), StandIn(), facts=facts)
