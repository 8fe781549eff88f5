"""Backend files: loading, and what they say about a node.

Nothing here imports onnx before a file's operators or a node are looked at.
"""

from dovetail.schema.backend import Backend, BackendSummary, Border, RegionRule
from dovetail.schema.backend_file import load_backend, peek_backend
from dovetail.schema.errors import SchemaError
from dovetail.schema.legality import Judge
from dovetail.schema.limits import Refusal
from dovetail.schema.operator_facts import OperatorFacts, load_operator_facts
from dovetail.schema.operators import port_names
from dovetail.schema.policies import POLICIES, Policies
from dovetail.schema.rules import Rule
from dovetail.schema.type_specs import TypeSpec
from dovetail.schema.verdict import Verdict

__all__ = [
    "POLICIES", "Backend", "BackendSummary", "Border", "Judge", "OperatorFacts", "Policies", "Refusal", "RegionRule",
    "Rule", "SchemaError", "TypeSpec", "Verdict", "load_backend", "load_operator_facts", "peek_backend", "port_names",
]  # fmt: skip
