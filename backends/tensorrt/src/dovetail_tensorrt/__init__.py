"""Backend for TensorRT: whole regions, typed for its parser, built if a builder is installed."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `tensorrt`, its policies, facts, engine, emitters and options."""
    registry.backend("tensorrt", "dovetail_tensorrt:tensorrt.yaml")
    registry.conformance("tensorrt", "dovetail_tensorrt:conformance.yaml")
    registry.policy("tensorrt", "dovetail_tensorrt:policies/tensorrt.yaml")
    registry.policy("tensorrt-bf16", "dovetail_tensorrt:policies/tensorrt_bf16.yaml")
    for fact in (
        "condition_given",
        "extents_from_integers",
        "int8_constant",
        "known_kernel",
        "positive_scale",
        "scales_of_open_axis",
        "static_extents",
        "symmetric",
    ):
        registry.fact(fact, f"dovetail_tensorrt.facts:{fact}")
    registry.engine("tensorrt", "dovetail_tensorrt.runtime.engine:TensorRT")
    registry.pass_("signed-integers", "dovetail_tensorrt.signed_integers:SignedIntegers")
    registry.emitter("tensorrt-engine", "dovetail_tensorrt.tensorrt_engine:TensorRTEngine")
    registry.emitter("ep-context", "dovetail_tensorrt.ep_context:EPContext")
    registry.option("tensorrt", "dovetail_tensorrt.profiles.option:PROFILE")
    registry.option("ask-parser", "dovetail_tensorrt.ask_parser_option:ASK_PARSER")
