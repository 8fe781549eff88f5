"""Operators of ACME's vision library."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the file of operators, and the kernels of those that are not made of others."""
    registry.operators("acme-vision", "dovetail_acme_operators:acme_ops.yaml")
    registry.kernel("acme-top-bits", "dovetail_acme_operators.kernels:TopBits")
    registry.kernel("acme-swap-bytes", "dovetail_acme_operators.kernels:SwapBytes")
