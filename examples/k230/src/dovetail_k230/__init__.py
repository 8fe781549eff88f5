"""The backend k230; imported whenever Dovetail starts, so it imports nothing heavy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register what stands beside k230.backend.yaml, which is found by its name."""
    registry.emitter("k230-kmodel", "dovetail_k230.emitter:KModel")
    registry.engine("k230-simulator", "dovetail_k230.engine:Simulator")
    registry.conformance("k230", "dovetail_k230:conformance.yaml")
