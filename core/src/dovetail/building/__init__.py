"""Building models in Python, operator by operator, with casts by policy where a region asks for them."""

from dovetail.building.autocast import autocast
from dovetail.building.builder import Builder

__all__ = ["Builder", "autocast"]
