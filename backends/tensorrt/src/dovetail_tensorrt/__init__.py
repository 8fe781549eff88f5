"""TensorRT engines: whole regions, typed for its parser, built where a builder is installed."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `tensorrt`."""
    registry.backend("tensorrt", "dovetail_schemas:backends/tensorrt.yaml")
