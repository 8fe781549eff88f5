"""YAML formats of backend files, operator files, policies and operator facts, with their parsers.

Names are imported on first use: a listing needs few of them, and onnx is needed only to look at the operators of a file
or at a node.
"""

from __future__ import annotations

import importlib

from dovetail.plugin import hookimpl

_PUBLIC = {
    **dict.fromkeys(("Backend", "Border", "RegionRule"), "dovetail_schemas.backend"),
    "load_backend": "dovetail_schemas.backend_file",
    "peek_backend": "dovetail_schemas.backend_yaml",
    "SchemaError": "dovetail_schemas.yaml_source",
    "Judge": "dovetail_schemas.legality",
    **dict.fromkeys(
        ("OperatorFacts", "load_operator_facts", "parse_operator_facts"), "dovetail_schemas.operator_facts"
    ),
    **dict.fromkeys(("POLICIES", "Policies", "load_policies"), "dovetail_schemas.policy_file"),
    "Rule": "dovetail_schemas.rules",
    "TypeSpec": "dovetail_schemas.type_specs",
}
__all__ = sorted((*_PUBLIC, "dovetail_api", "register"))

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the format of backend files, and the command that checks one."""
    registry.backend_format("yaml", "dovetail_schemas.backend_yaml:BackendYaml")
    registry.command("check", "dovetail_schemas.check_command:CHECK")


@hookimpl
def before_opening(registry):
    """Register the operators of installed files with onnx, for its checks and shape inference."""
    from dovetail_schemas.operator_files.opening import register_schemas

    register_schemas(registry)


@hookimpl
def opened(model, registry):
    """Add the decompositions of the model's operators to it, as functions."""
    from dovetail_schemas.operator_files.opening import add_functions

    add_functions(model, registry)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_schemas' has no attribute {name!r}")
