# What `dovetail_transforms.lowering` exports, each name with its module.

from dovetail_transforms.lowering.lowering import (
    Lowered as Lowered,
    NotLowered as NotLowered,
    can_lower as can_lower,
    lower as lower,
)
