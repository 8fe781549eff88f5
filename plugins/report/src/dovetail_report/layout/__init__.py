"""Layered drawings of graphs, in linear time."""
