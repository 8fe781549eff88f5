"""Compiled models behind interfaces that programs use: ONNX Runtime's session, `onnx.backend`, `torch.compile`."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the command `cache`."""
    registry.command("cache", "dovetail_adapters.cache_command:CACHE")
