"""YAML formats of backend files, policies and operator facts, with their parsers.

Names are imported on first use (`__init__.pyi`): a listing needs few of them, and none needs onnx before a file's
operators or a node are looked at.
"""

from __future__ import annotations

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the format of backend files, and the command that checks one."""
    registry.backend_format("yaml", "dovetail_schemas.backend_yaml:BackendYaml")
    registry.command(
        "check",
        "dovetail_schemas.check_command:CHECK",
        "extend",
        "Check a backend file, its table over models, or a file of operators.",
    )
