"""Optimization profiles: the extents for which an engine is built, given, seen in data, and carried to its inputs."""
