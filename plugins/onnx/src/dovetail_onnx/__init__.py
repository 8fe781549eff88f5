"""The front end for ONNX models: files, ONNX text, protos and bytes, all of them checked when they are opened."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the front end."""
    registry.frontend("onnx", "dovetail_onnx.frontend:OnnxFrontend")
