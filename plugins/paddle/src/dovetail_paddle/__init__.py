"""Front end for PaddlePaddle programs: `.pdmodel` and `.json` with their `.pdiparams`, read without Paddle."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the front end, and the pass that lowers Paddle operators to ONNX."""
    registry.frontend("paddle", "dovetail_paddle.frontend:PaddleFrontend")
    registry.pass_("lower-paddle", "dovetail_paddle.lowering.lower_paddle:LowerPaddle")
    registry.option("keep-unknown", "dovetail_paddle.frontend:KEEP_UNKNOWN")
