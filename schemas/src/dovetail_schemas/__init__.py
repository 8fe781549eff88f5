"""Backend files, operator files, policies and operator facts as YAML, and what reads them.

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
    """Bring the format of backend files, and the command that checks one."""
    registry.backend_format("yaml", "dovetail_schemas.backend_yaml:BackendYaml")
    registry.command("check", "dovetail_schemas.check_command:CHECK")


@hookimpl
def before_opening(registry):
    """Let checks and inference know the operators of installed files."""
    from dovetail_schemas.operator_files.opening import register_schemas

    register_schemas(registry)


@hookimpl
def opened(model, registry):
    """Give the model the decompositions of its operators."""
    from dovetail_schemas.operator_files.opening import add_functions

    add_functions(model, registry)
