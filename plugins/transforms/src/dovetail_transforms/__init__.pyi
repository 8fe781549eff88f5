# What backends and other plugins may use of `dovetail_transforms`, each name with its module.

from dovetail.plugin import Registry
from dovetail_transforms.canonicalize.fold_constants import evaluator_of as evaluator_of
from dovetail_transforms.canonicalize.inference import infer_types as infer_types
from dovetail_transforms.canonicalize.input_ranges import declared_range as declared_range
from dovetail_transforms.fusions.fusion import Fusion as Fusion
from dovetail_transforms.lowering.lowering import lower as lower
from dovetail_transforms.lowering.node_facts import extents as extents
from dovetail_transforms.new_nodes import NewNodes as NewNodes
from dovetail_transforms.rewriting.rewriting import (
    Replacement as Replacement,
    Rewrite as Rewrite,
    RewriteOutcome as RewriteOutcome,
    rewrite_model as rewrite_model,
)

dovetail_api: int

def register(registry: Registry) -> None: ...
