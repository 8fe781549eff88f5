"""The one import that a plugin needs: hooks, the registry, and what plugins implement. See docs/plugins.md.

Names are imported when they are first used, and none of them imports onnx.
"""

from __future__ import annotations

import importlib

_PUBLIC = {
    **dict.fromkeys(("API_VERSION", "hookimpl", "hookspec"), "dovetail.plugin.hookspecs"),
    **dict.fromkeys(("PluginRecord", "PluginSet", "load_plugins"), "dovetail.plugin.loader"),
    "PluginWarning": "dovetail.plugin.isolation",
    **dict.fromkeys(("DovetailError", "ResultError", "UsageError"), "dovetail.errors"),
    "Registry": "dovetail.plugin.registry",
    "Command": "dovetail.plugin.commands",
    **dict.fromkeys(
        ("Asked", "CompileJob", "Completes", "Option", "Plans", "Proceed", "Requests"), "dovetail.plugin.options"
    ),
    "Verification": "dovetail.verification",
    **dict.fromkeys(
        (
            "Backend",
            "BackendFormat",
            "BackendSummary",
            "Fact",
            "FindFile",
            "Judge",
            "RegionEnds",
            "RegionLimits",
            "Source",
            "SourceFiles",
        ),
        "dovetail.plugin.backend",
    ),
    **dict.fromkeys(
        (
            "Editor",
            "Executor",
            "InputData",
            "RegionFormer",
            "RegionView",
            "Regions",
            "Runner",
            "Solver",
        ),
        "dovetail.plugin.services",
    ),
    **dict.fromkeys(
        (
            "FixUp",
            "Neighbour",
            "Remedies",
            "Strategy",
            "View",
        ),
        "dovetail.plugin.strategy",
    ),
    **dict.fromkeys(("Recognition", "ResultStore", "SavedResult"), "dovetail.plugin.results"),
    **dict.fromkeys(("Dialect", "Frontend", "SourceSnapshot", "Unbuilt"), "dovetail.plugin.frontend"),
    **dict.fromkeys(("ParameterRule", "PortRule", "Refusal", "Verdict"), "dovetail.planning.verdict"),
    "Format": "dovetail.ir.formats",
    **dict.fromkeys(("Analysis", "Context", "Pass"), "dovetail.passes"),
    **dict.fromkeys(("Claim", "Claims", "claim_of"), "dovetail.planning.claim"),
    "Remark": "dovetail.planning.remark",
    **dict.fromkeys(("Remedy", "remedy"), "dovetail.planning.remedy"),
    **dict.fromkeys(("ConversionKind", "Step"), "dovetail.planning.conversion"),
    "ObserverChoice": "dovetail.planning.observers",
    **dict.fromkeys(("Holding", "Observer", "Parameters"), "dovetail.planning.holdings"),
    **dict.fromkeys(("Artifact", "Call", "EmittedRegion", "Emitter", "StandIn"), "dovetail.plugin.emitter"),
    "Edit": "dovetail.planning.edits",
    **dict.fromkeys(("SpanRecorder", "span_recorder"), "dovetail.plugin.recorder"),
    **dict.fromkeys(
        (
            "Availability",
            "Engine",
            "EngineError",
            "Evaluator",
            "Executed",
            "Reads",
            "RegionModel",
            "SelectiveEngine",
            "Session",
        ),
        "dovetail.plugin.engine",
    ),
    **dict.fromkeys(("DeviceMemory", "Kernel"), "dovetail.plugin.kernel"),
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail.plugin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
