"""Kernels of the operators in acme.ops.yaml."""

from dovetail_kernels import Kernel


class Scale(Kernel):
    """Multiplies by a number; for images in float32 with channels last, say."""

    function = "acme::scale"
    layout = "NHWC"
    types = ("float32",)

    def run(self, inputs, attributes):
        return [inputs[0] * attributes["factor"]]
