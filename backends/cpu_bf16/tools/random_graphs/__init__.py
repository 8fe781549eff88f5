"""Seeded random models over most operators of ONNX, and the tolerance of their results in low precision."""

from .generator import OPERATORS, random_model
from .graph import Impossible
from .tolerance import Judgment, judge, spread

__all__ = ["OPERATORS", "Impossible", "Judgment", "judge", "random_model", "spread"]
