# What backends and other plugins may use of `dovetail_precision`, each name with its module.

from dovetail.plugin import Registry
from dovetail_precision.exact_constants import exact_floats as exact_floats
from dovetail_precision.ranges.interval_arithmetic import (
    ARITHMETIC as ARITHMETIC,
    MERGING as MERGING,
    MOVEMENT as MOVEMENT,
    integer_interval as integer_interval,
    is_integer as is_integer,
)
from dovetail_precision.ranges.range import Range as Range

dovetail_api: int

def register(registry: Registry) -> None: ...
