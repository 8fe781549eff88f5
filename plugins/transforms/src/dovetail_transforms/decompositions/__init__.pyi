# What `dovetail_transforms.decompositions` exports, each name with its module.

from dovetail_transforms.decompositions.decomposing import (
    LOWEST as LOWEST,
    can_decompose as can_decompose,
    decompose as decompose,
    decompose_node as decompose_node,
    is_known as is_known,
    known_operators as known_operators,
)
