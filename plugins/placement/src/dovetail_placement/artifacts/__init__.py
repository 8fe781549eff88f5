"""Regions as model-local functions, and what backends make of them for their own tools."""
