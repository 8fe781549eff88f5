# What backends and other plugins may use of `dovetail_onnx`, each name with its module.

from dovetail.plugin import Registry
from dovetail_onnx.files.folder_cache import (
    ARTIFACTS as ARTIFACTS,
    CACHES as CACHES,
    ENGINES as ENGINES,
    FolderCache as FolderCache,
    UserCache as UserCache,
)
from dovetail_onnx.files.parsing import Malformed as Malformed, parse_json as parse_json, yaml_events as yaml_events
from dovetail_onnx.files.reading import file_sha256 as file_sha256, read_input as read_input
from dovetail_onnx.files.writing import replacing_file as replacing_file, write_text as write_text
from dovetail_onnx.native_runtime import (
    READ_TO_THE_END as READ_TO_THE_END,
    configure as configure,
    native_state as native_state,
    new_session as new_session,
    onnx_runtime as onnx_runtime,
    quiet_settings as quiet_settings,
)
from dovetail_onnx.opening import open_text as open_text
from dovetail_onnx.results.store import FolderStore as FolderStore
from dovetail_onnx.partial_tensors import (
    PartialTensor as PartialTensor,
    StreamedTensor as StreamedTensor,
    TensorIndex as TensorIndex,
    parts_of as parts_of,
)
from dovetail_onnx.saving import (
    save_model as save_model,
    saved_size as saved_size,
    tensor_chunks as tensor_chunks,
)
from dovetail_onnx.signatures import (
    Signature as Signature,
    Signatures as Signatures,
    find_signature as find_signature,
    input_name as input_name,
    output_name as output_name,
)
from dovetail_onnx.skeleton import skeleton_of as skeleton_of
from dovetail_onnx.type_check import node_problem as node_problem
from dovetail_onnx.type_gaps import to_proto as to_proto

dovetail_api: int

def register(registry: Registry) -> None: ...
