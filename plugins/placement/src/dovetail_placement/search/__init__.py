"""Searches in a model: nodes between others (`match`), whole paths, and small patterns."""

from dovetail_placement.search.graph import DOWN, UP, Edge, SearchGraph
from dovetail_placement.search.paths import connected, match, paths
from dovetail_placement.search.patterns import Pattern, matches_of
from dovetail_placement.search.shape_arithmetic import ShapeArithmetic

__all__ = [
    "DOWN",
    "UP",
    "Edge",
    "Pattern",
    "SearchGraph",
    "ShapeArithmetic",
    "connected",
    "match",
    "matches_of",
    "paths",
]
