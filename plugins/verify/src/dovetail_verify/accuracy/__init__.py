"""Accuracy: goals for a result, and what of a request costs it the accuracy."""

from dovetail_verify.accuracy.goals import Goals, Miss

__all__ = ["Goals", "Miss"]
