# What `dovetail_schemas` exports, each name with its module.

from dovetail.plugin import Registry
from dovetail_schemas.backend import FileBackend as FileBackend
from dovetail_schemas.region_rules import RegionRule as RegionRule
from dovetail_schemas.backend_file import load_backend as load_backend
from dovetail_schemas.backend_yaml import peek_backend as peek_backend
from dovetail_schemas.errors import SchemaError as SchemaError
from dovetail_schemas.legality import RuleJudge as RuleJudge
from dovetail_schemas.operator_facts import (
    OperatorFacts as OperatorFacts,
    load_operator_facts as load_operator_facts,
    parse_operator_facts as parse_operator_facts,
)
from dovetail_schemas.policy_file import POLICIES as POLICIES, Policies as Policies, load_policies as load_policies
from dovetail_schemas.rules import Rule as Rule
from dovetail_schemas.type_specs import TypeSpec as TypeSpec
from dovetail_schemas.yaml_source import Entries as Entries, Items as Items, Node as Node, Scalar as Scalar

dovetail_api: int

def register(registry: Registry) -> None: ...
