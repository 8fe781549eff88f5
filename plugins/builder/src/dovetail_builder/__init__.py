"""Building models in Python, operator by operator, with casts by policy where a region asks for them."""

from dovetail_builder.autocast import autocast
from dovetail_builder.builder import Builder

__all__ = ["Builder", "autocast"]
