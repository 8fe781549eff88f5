"""The backend ethos-u; imported whenever Dovetail starts, so it imports nothing heavy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register what stands beside ethos_u.backend.yaml, which is found by its name."""
    registry.emitter("ethos-u-vela", "dovetail_ethos_u.emitter:Vela")
    registry.engine("ethos-u-reference", "dovetail_ethos_u.engine:Reference")
    registry.conformance("ethos-u", "dovetail_ethos_u:conformance.yaml")
