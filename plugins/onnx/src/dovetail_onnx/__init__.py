"""Front end for ONNX models, and the files of compiled results: folders and plans.

`files` writes files atomically and reads them within limits; `source` checks models when they are opened.
"""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

from dovetail_onnx.native_runtime import disable_telemetry

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the front end and the result store."""
    disable_telemetry()
    registry.frontend("onnx", "dovetail_onnx.frontend:OnnxFrontend")
    registry.result_store("folder", "dovetail_onnx.results.store:FolderStore")
