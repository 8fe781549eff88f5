# What `dovetail_transforms.decompositions` exports, each name with its module.

from dovetail_transforms.decompositions.decomposing import (
    LOWEST as LOWEST,
    WriteOutNode as WriteOutNode,
    can_decompose as can_decompose,
    decompose as decompose,
    decompose_node as decompose_node,
    is_known as is_known,
    known_operators as known_operators,
    operators_needed as operators_needed,
)
from dovetail_transforms.decompositions.formula import operator_of as operator_of
from dovetail_transforms.decompositions.rules.all_rules import ON_REQUEST as ON_REQUEST
