"""bfloat16 on CPUs through OpenVINO."""

from dovetail.hookspecs import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """The backend `cpu-bf16`, its engine, and the fact that its limits ask for."""
    registry.engine("openvino-cpu", "dovetail_cpu_bf16.engine:OpenVinoCpu")
    registry.backend("cpu-bf16", "dovetail_schemas:backends/cpu_bf16.yaml")
    registry.fact("int64_data", "dovetail_cpu_bf16.facts:int64_data")
