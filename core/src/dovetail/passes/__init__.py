"""Passes: the base class, pipelines and their text, and the manager."""
