# What backends and other plugins may use of `dovetail_runtime`, each name with its module.

from dovetail.plugin import Registry
from dovetail_runtime.data.batches import batches as batches
from dovetail_runtime.data.independent_rows import fitted as fitted
from dovetail_runtime.data.input_data import RereadableData as RereadableData
from dovetail_runtime.data.quantized_ends import SCALE_KEY as SCALE_KEY
from dovetail_runtime.converting import ConvertingEngine as ConvertingEngine
from dovetail_runtime.engines import engines_of as engines_of
from dovetail_runtime.executor import RegionExecutor as RegionExecutor
from dovetail_runtime.program import (
    Instruction as Instruction,
    Program as Program,
    control_flow as control_flow,
    holds as holds,
)
from dovetail_runtime.sessions import (
    Bindable as Bindable,
    OnnxRuntimeBacked as OnnxRuntimeBacked,
    SelfChecking as SelfChecking,
)
from dovetail_runtime.nested_graphs import (
    extract_body as extract_body,
    inline_regions as inline_regions,
    with_nodes as with_nodes,
)
from dovetail_runtime.processor import (
    BFLOAT16 as BFLOAT16,
    DOT_PRODUCTS as DOT_PRODUCTS,
    has_bfloat16 as has_bfloat16,
    saturates_dot_products as saturates_dot_products,
)
from dovetail_runtime.region_runner import (
    NOT_REPORTED as NOT_REPORTED,
    follow_fusions as follow_fusions,
    node_key as node_key,
)
from dovetail_runtime.serialize import (
    TENSOR_TYPES as TENSOR_TYPES,
    engine_source as engine_source,
    has_type as has_type,
    needs_file as needs_file,
    source_without_weights as source_without_weights,
    type_name as type_name,
    value_type as value_type,
)
from dovetail_runtime.session_start import (
    DeployedSession as DeployedSession,
    KeptSession as KeptSession,
    SessionStart as SessionStart,
)
from dovetail_runtime.tool_program import ToolProgram as ToolProgram

dovetail_api: int

def register(registry: Registry) -> None: ...
