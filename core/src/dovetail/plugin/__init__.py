"""The one import that a plugin needs: hooks, the registry, and what plugins implement. See docs/plugins.md.

Names are imported when they are first used, and none of them imports onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.errors import DovetailError as DovetailError, ResultError as ResultError, UsageError as UsageError
    from dovetail.ir.formats import Format as Format
    from dovetail.passes import Analysis as Analysis, Context as Context, Pass as Pass
    from dovetail.planning.claim import Claim as Claim, Claims as Claims, claim_of as claim_of
    from dovetail.planning.conversion import ConversionKind as ConversionKind, Step as Step
    from dovetail.planning.edits import Edit as Edit
    from dovetail.planning.holdings import Holding as Holding, Observer as Observer, Parameters as Parameters
    from dovetail.planning.observers import ObserverChoice as ObserverChoice
    from dovetail.planning.remark import Remark as Remark
    from dovetail.planning.remedy import Remedy as Remedy, remedy as remedy
    from dovetail.planning.verdict import (
        ParameterRule as ParameterRule,
        PortRule as PortRule,
        Refusal as Refusal,
        Verdict as Verdict,
    )
    from dovetail.plugin.backend import (
        Backend as Backend,
        BackendFormat as BackendFormat,
        BackendSummary as BackendSummary,
        Fact as Fact,
        FindFile as FindFile,
        Judge as Judge,
        RegionEnds as RegionEnds,
        RegionLimits as RegionLimits,
        Source as Source,
        SourceFiles as SourceFiles,
    )
    from dovetail.plugin.commands import Command as Command
    from dovetail.plugin.emitter import (
        Artifact as Artifact,
        Call as Call,
        EmittedRegion as EmittedRegion,
        Emitter as Emitter,
        StandIn as StandIn,
    )
    from dovetail.plugin.engine import (
        Availability as Availability,
        Engine as Engine,
        EngineError as EngineError,
        Evaluator as Evaluator,
        Executed as Executed,
        Reads as Reads,
        RegionModel as RegionModel,
        SelectiveEngine as SelectiveEngine,
        Session as Session,
    )
    from dovetail.plugin.frontend import (
        Dialect as Dialect,
        Frontend as Frontend,
        SourceSnapshot as SourceSnapshot,
        Unbuilt as Unbuilt,
    )
    from dovetail.plugin.hookspecs import API_VERSION as API_VERSION, hookimpl as hookimpl, hookspec as hookspec
    from dovetail.plugin.isolation import PluginWarning as PluginWarning
    from dovetail.plugin.kernel import DeviceMemory as DeviceMemory, Kernel as Kernel
    from dovetail.plugin.loader import (
        PluginRecord as PluginRecord,
        PluginSet as PluginSet,
        load_plugins as load_plugins,
    )
    from dovetail.plugin.options import (
        Asked as Asked,
        CompileJob as CompileJob,
        Option as Option,
        Proceed as Proceed,
    )
    from dovetail.plugin.recorder import SpanRecorder as SpanRecorder, span_recorder as span_recorder
    from dovetail.plugin.registry import Registry as Registry
    from dovetail.plugin.results import (
        Recognition as Recognition,
        ResultStore as ResultStore,
        SavedResult as SavedResult,
    )
    from dovetail.plugin.services import (
        Editor as Editor,
        Executor as Executor,
        InputData as InputData,
        RegionFormer as RegionFormer,
        RegionView as RegionView,
        Regions as Regions,
        Runner as Runner,
        Solver as Solver,
    )
    from dovetail.plugin.strategy import (
        Neighbour as Neighbour,
        Strategy as Strategy,
        View as View,
    )
    from dovetail.verification import Verification as Verification

_PUBLIC = {
    **dict.fromkeys(("API_VERSION", "hookimpl", "hookspec"), "dovetail.plugin.hookspecs"),
    **dict.fromkeys(("PluginRecord", "PluginSet", "load_plugins"), "dovetail.plugin.loader"),
    "PluginWarning": "dovetail.plugin.isolation",
    **dict.fromkeys(("DovetailError", "ResultError", "UsageError"), "dovetail.errors"),
    "Registry": "dovetail.plugin.registry",
    "Command": "dovetail.plugin.commands",
    **dict.fromkeys(("Asked", "CompileJob", "Option", "Proceed"), "dovetail.plugin.options"),
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
            "Neighbour",
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


if not TYPE_CHECKING:  # a type checker reports names that are not imported above

    def __getattr__(name: str) -> object:
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'dovetail.plugin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
