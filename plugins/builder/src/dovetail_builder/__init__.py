"""Builder for models in Python, operator by operator, with automatic casts by policy in autocast regions."""

from dovetail_builder.autocast import autocast
from dovetail_builder.builder import Builder

__all__ = ["Builder", "autocast"]
