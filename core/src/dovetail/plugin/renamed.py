"""What plugins used under another name in earlier versions.

Names of `dovetail.plugin` and kinds work under their old names until the version that is said here
(docs/reference/stability.md). Modules that moved do not: their importers are told the new names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from dovetail.text import did_you_mean

NAMES = {
    "Holding": ("QuantizedValue", "0.2"),
    "Neighbour": ("Neighbor", "0.2"),
    "RegionFormer": ("Partitioner", "0.2"),
    "Unbuilt": ("LazyModel", "0.2"),
    "receipts_folder": ("user_folder", "0.2"),
}
"""Names of `dovetail.plugin`, each with its new name and the version that removes the old one."""

KINDS = {"region_former": ("partitioner", "0.2")}
"""Kinds of components, in the same way."""

COMMANDS = {"hb-diff": "bpu diff", "hb-report": "bpu report"}
"""Commands of the program `dovetail`, which are refused with their new names."""

STAGES = {
    "analyse": "analyze",
    "normalise": "normalize",
    "quantise": "quantize",
    "weights": "quantize",
    "lower": "emit",
}

MODULES = {
    "dovetail.hookspecs": "dovetail.plugin",
    "dovetail.ir.fresh_names": "dovetail.ir",
    "dovetail.ir.opening": "dovetail.ir",
    "dovetail.passes.Rewrite": "dovetail_transforms.Rewrite",
    "dovetail.passes.rewrite_model": "dovetail_transforms.rewrite_model",
    "dovetail.plugin.Compile": "dovetail.plugin.Policy",
    "dovetail.plugin.Observed": "dovetail.plugin.Outcome",
    "dovetail.plugin.Proceed": "dovetail.plugin.Policy",
    "dovetail.runtime.engine": "dovetail.plugin",
    "dovetail.runtime.executor": "dovetail.plugin",
    "dovetail.runtime.serialise.source_of": "dovetail_runtime.engine_source",
    "dovetail.runtime": "dovetail_runtime",
    "dovetail_files": "dovetail_onnx.files",
    "dovetail_lowering": "dovetail_transforms",
    "dovetail_regions": "dovetail_placement",
    "dovetail_results": "dovetail_onnx",
    "dovetail_rewriting": "dovetail_transforms",
    "dovetail_runtime.executor.Executor": "dovetail.plugin.Executor",
    "dovetail_runtime.serialise.source_of": "dovetail_runtime.engine_source",
    "dovetail_runtime.serialize.source_of": "dovetail_runtime.engine_source",
    "dovetail_schemas.Backend": "dovetail_schemas.FileBackend",
    "dovetail_schemas.Judge": "dovetail_schemas.RuleJudge",
}
"""Modules, and names in modules. That of a package stands for what was in it, where nothing more is known."""

_NAME = re.compile(r"cannot import name '(\w+)'")
_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")


def now_called(name: str, renamed: Mapping[str, str], known: Iterable[str]) -> str:
    """Return what an unknown name is called now, or the known ones that are alike, as a clause; empty if none is."""
    return f", which is {renamed[name]!r} now" if name in renamed else did_you_mean(name, known)


def new_name(error: BaseException) -> str:
    """Return what could not be imported is called now, or its near misses, as a clause; empty if nothing is.

    Args:
        error: An `ImportError`, or an `AttributeError` of a module.
    """
    module, name = _missing(error)
    if not module.split(".")[0].startswith("dovetail"):
        return ""
    asked = f"{module}.{name}" if name else module
    parts = asked.split(".")
    for length in range(len(parts), 0, -1):
        if found := MODULES.get(".".join(parts[:length])):
            rest = name if name and length < len(parts) else ""
            return f", which is {found}{f'.{rest}' if rest and not found.endswith(rest) else ''} now"
    return _near(module, name)


def _missing(error: BaseException) -> tuple[str, str]:
    """Return the module and the name that are missing; an empty name for a module, empty texts for another error."""
    if isinstance(error, ModuleNotFoundError):
        return error.name or "", ""
    if isinstance(error, ImportError):
        found = _NAME.search(str(error))
        return error.name or "", found[1] if found else ""
    attribute = _ATTRIBUTE.search(str(error)) if isinstance(error, AttributeError) else None
    return (attribute[1], attribute[2]) if attribute else ("", "")


def _near(module: str, name: str) -> str:
    """Return public names of a module that are alike, as a clause."""
    known = [one for one in dir(sys.modules.get(module)) if not one.startswith("_")] if name else []
    return did_you_mean(name, known)
