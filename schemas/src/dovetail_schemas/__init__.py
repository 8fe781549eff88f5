"""Backend files, operator files, policies and operator facts as YAML, and what reads them.

Names are imported when they are first used: a listing needs few of them, and none needs onnx before a file's operators
or a node are looked at.
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


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_schemas' has no attribute {name!r}")
