"""Backend for integers on Qualcomm's HTP through ONNX Runtime's QNN execution provider."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `qnn`, its engine and its emitter."""
    registry.engine("qnn-htp", "dovetail_qnn.htp:Htp")
    registry.emitter("qnn-context", "dovetail_qnn.htp:HtpContext")
    registry.backend("qnn", "dovetail_qnn:qnn.yaml")
    registry.conformance("qnn", "dovetail_qnn:conformance.yaml")
