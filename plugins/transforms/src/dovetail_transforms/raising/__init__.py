"""Raising: models brought to a newer opset of the default domain."""

from dovetail_transforms.raising.raising import NotRaised, raise_function, raise_opset

__all__ = ["NotRaised", "raise_function", "raise_opset"]
