"""Accuracy goals for a result, and the nodes of a request that lose accuracy."""

from dovetail_verify.accuracy.goals import Goals, Miss

__all__ = ["Goals", "Miss"]
