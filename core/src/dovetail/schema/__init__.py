"""Backend files: loading, and what they say about a node.

Names are imported when they are first used: a listing needs few of them, and none needs onnx before a file's operators
or a node are looked at.
"""

from __future__ import annotations

import importlib

_PUBLIC = {
    **dict.fromkeys(("Backend", "Border", "RegionRule"), "dovetail.schema.backend"),
    "load_backend": "dovetail.schema.backend_file",
    **dict.fromkeys(("BackendSummary", "peek_backend"), "dovetail.schema.peek"),
    "SchemaError": "dovetail.schema.errors",
    "Judge": "dovetail.schema.legality",
    "Refusal": "dovetail.schema.limits",
    **dict.fromkeys(("OperatorFacts", "load_operator_facts"), "dovetail.schema.operator_facts"),
    "port_names": "dovetail.ir.signatures",
    **dict.fromkeys(("POLICIES", "Policies"), "dovetail.schema.policies"),
    "Rule": "dovetail.schema.rules",
    "TypeSpec": "dovetail.schema.type_specs",
    "Verdict": "dovetail.schema.verdict",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail.schema' has no attribute {name!r}")
