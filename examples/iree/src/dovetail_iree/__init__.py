"""The backend iree; imported whenever Dovetail starts, so it imports nothing heavy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register what stands beside iree.backend.yaml, which is found by its name."""
    registry.emitter("iree-vmfb", "dovetail_iree.emitter:Vmfb")
    registry.engine("iree-runtime", "dovetail_iree.engine:Runtime")
    registry.conformance("iree", "dovetail_iree:conformance.yaml")
