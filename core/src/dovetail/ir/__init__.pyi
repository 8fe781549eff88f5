# What `dovetail.ir` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.ir.editing import insert_on_edge as insert_on_edge, replace_uses_except as replace_uses_except
from dovetail.ir.model import Model as Model
from dovetail.ir.types import promote as promote
from dovetail.ir.verifier import verify_model as verify_model

from dovetail.ir.graphs import (
    FlatGraph as FlatGraph,
    Reads as Reads,
    all_nodes as all_nodes,
    bodies as bodies,
    body_nodes as body_nodes,
    is_onnx as is_onnx,
    named_bodies as named_bodies,
    reads_of as reads_of,
    used_values as used_values,
)
from dovetail.ir.editing import (
    FreshNames as FreshNames,
    insert_after_value as insert_after_value,
    insert_beside as insert_beside,
)
from dovetail.ir.formats import (
    FLOAT32 as FLOAT32,
    FLOAT_FORMATS as FLOAT_FORMATS,
    Format as Format,
    SCHEMES as SCHEMES,
    float_format as float_format,
    format_of as format_of,
)
from dovetail.ir.gc_pause import gc_paused as gc_paused
from dovetail.ir.required import (
    constant_of as constant_of,
    dtype_of as dtype_of,
    graph_of as graph_of,
    input_of as input_of,
    name_of as name_of,
    producer_of as producer_of,
    shape_of as shape_of,
)
from dovetail.ir.types import (
    FLOATS as FLOATS,
    dtype_name as dtype_name,
    float_name as float_name,
    from_name as from_name,
    our_name as our_name,
)
