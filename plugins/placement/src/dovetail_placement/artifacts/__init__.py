"""Outlining of regions into model-local functions, and emission of artifacts for backends' own tools."""
