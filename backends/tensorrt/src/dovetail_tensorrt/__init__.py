"""TensorRT engines: whole regions, typed for its parser, built where a builder is installed."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `tensorrt`, its emitters, its engine and its options."""
    registry.backend("tensorrt", "dovetail_schemas:backends/tensorrt.yaml")
    registry.emitter("tensorrt-engine", "dovetail_tensorrt.tensorrt_engine:TensorRTEngine")
    registry.option("tensorrt", "dovetail_tensorrt.profiles.option:PROFILE")
