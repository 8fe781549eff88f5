"""Folders of language models: every part compiled by one request, into a folder that generators load unchanged."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the kind of folder, and the option `--runtime`."""
    registry.folder_kind("generator", "dovetail_decoder.kind:GeneratorKind")
    registry.option("runtime", "dovetail_decoder.runtime_option:RUNTIME")
