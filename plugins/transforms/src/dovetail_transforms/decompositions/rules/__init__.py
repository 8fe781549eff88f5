"""Decompositions of single operators, by family."""
