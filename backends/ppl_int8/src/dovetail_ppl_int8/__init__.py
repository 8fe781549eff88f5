"""Backend for int8 on NVIDIA GPUs through OpenPPL."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `ppl-int8`, its passes, and its emitter."""
    registry.pass_("ppl-operators", "dovetail_ppl_int8.operators:PplOperators", for_backend="ppl-int8")
    registry.pass_("clip-integers", "dovetail_ppl_int8.clip_integers:ClipIntegers", for_backend="ppl-int8")
    registry.emitter("ppl-json", "dovetail_ppl_int8.ppl_json:PplJson")
    registry.backend("ppl-int8", "dovetail_ppl_int8:ppl_int8.yaml")
    registry.conformance("ppl-int8", "dovetail_ppl_int8:conformance.yaml")
