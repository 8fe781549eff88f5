# What `dovetail.plugin` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.errors import DovetailError as DovetailError, ResultError as ResultError, UsageError as UsageError
from dovetail.ir.dialect import Dialect as Dialect, LazyModel as LazyModel, SourceSnapshot as SourceSnapshot
from dovetail.ir.formats import Format as Format
from dovetail.ir.graphs import is_onnx as is_onnx
from dovetail.planning.regions import BorderValue as BorderValue
from dovetail.planning.claim import Claim as Claim, Claims as Claims, claim_of as claim_of
from dovetail.planning.conversion import ConversionKind as ConversionKind, Step as Step
from dovetail.planning.edits import Edit as Edit
from dovetail.planning.quantized_value import (
    QuantizedValue as QuantizedValue,
    Observer as Observer,
    Parameters as Parameters,
)
from dovetail.planning.quantized_value import ObserverChoice as ObserverChoice
from dovetail.planning.remark import Remark as Remark
from dovetail.planning.node_request import NodeRequest as NodeRequest
from dovetail.planning.remark import Remedy as Remedy, remedy as remedy
from dovetail.planning.claim import (
    ParameterRule as ParameterRule,
    PortRule as PortRule,
    Refusal as Refusal,
    Verdict as Verdict,
)
from dovetail.plugin.backend import (
    Backend as Backend,
    BackendFormat as BackendFormat,
    BackendSummary as BackendSummary,
    Border as Border,
    Fact as Fact,
    FindFile as FindFile,
    Judge as Judge,
    Source as Source,
)
from dovetail.plugin.commands import Command as Command
from dovetail.plugin.loading.discovery import PluginRecord as PluginRecord
from dovetail.plugin.emitter import (
    Artifact as Artifact,
    Call as Call,
    EmittedRegion as EmittedRegion,
    Emitter as Emitter,
    JointEmitter as JointEmitter,
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
from dovetail.plugin.folders import (
    CompiledFolder as CompiledFolder,
    FolderKind as FolderKind,
    ShippedFolder as ShippedFolder,
    compiled_folder as compiled_folder,
    shipped_folder as shipped_folder,
    with_kind as with_kind,
)
from dovetail.plugin.frontend import Frontend as Frontend
from dovetail.plugin.hookspecs import API_VERSION as API_VERSION, hookimpl as hookimpl, hookspec as hookspec
from dovetail.plugin.loading.isolation import PluginWarning as PluginWarning
from dovetail.plugin.invariant import Invariant as Invariant
from dovetail.plugin.loading.loader import PluginSet as PluginSet, load_plugins as load_plugins
from dovetail.plugin.options import CompileJob as CompileJob, Option as Option
from dovetail.plugin.search import (
    Asked as Asked,
    Measure as Measure,
    Outcome as Outcome,
    Phase as Phase,
    Policy as Policy,
    Proposal as Proposal,
    Proposer as Proposer,
    Steps as Steps,
    Stepwise as Stepwise,
    Trial as Trial,
)
from dovetail.plugin.engine import SpanRecorder as SpanRecorder, span_recorder as span_recorder
from dovetail.plugin.processes import (
    Finished as Finished,
    PythonProcess as PythonProcess,
    child_environment as child_environment,
    end_with_parent as end_with_parent,
    run_command as run_command,
)
from dovetail.plugin.loading.registry import Registry as Registry
from dovetail.plugin.results import (
    Recognition as Recognition,
    ResultStore as ResultStore,
    SavedResult as SavedResult,
)
from dovetail.plugin.temporary import (
    TemporaryFolder as TemporaryFolder,
    is_temporary as is_temporary,
    anonymous_file as anonymous_file,
    hold as hold,
    RECEIPTS as RECEIPTS,
    remove_abandoned as remove_abandoned,
    remove_orphans as remove_orphans,
    user_folder as user_folder,
)
from dovetail.plugin.compiled import CompiledModel as CompiledModel
from dovetail.plugin.context import Analysis as Analysis, Context as Context
from dovetail.plugin.partitioning import (
    Partitioner as Partitioner,
    Regions as Regions,
    RegionView as RegionView,
)
from dovetail.plugin.pass_ import Pass as Pass
from dovetail.plugin.running import (
    Executor as Executor,
    InputData as InputData,
    Runner as Runner,
    Verification as Verification,
    input_data as input_data,
)
from dovetail.plugin.tool import Tool as Tool, ToolEndedError as ToolEndedError
from dovetail.plugin.strategy import (
    Editor as Editor,
    Neighbor as Neighbor,
    Solver as Solver,
    Strategy as Strategy,
    View as View,
)
