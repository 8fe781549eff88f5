"""The front end for ONNX models, and the files that compiling leaves: results in folders, and plans.

`files` writes them whole or not at all and reads within limits, `source` checks models when they are opened.
"""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the front end, and the store of results."""
    registry.frontend("onnx", "dovetail_onnx.frontend:OnnxFrontend")
    registry.result_store("folder", "dovetail_onnx.results.store:FolderStore")
