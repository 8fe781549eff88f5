"""Seeded random models over most operators of ONNX, and how far a low precision may move their results."""

from .generator import OPERATORS, random_model
from .graph import Impossible
from .tolerance import Judgement, judge, spread

__all__ = ["OPERATORS", "Impossible", "Judgement", "judge", "random_model", "spread"]
