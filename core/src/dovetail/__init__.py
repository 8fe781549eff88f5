"""Dovetail cuts a model into the parts that each backend does best, joins them, and can say why."""

__version__ = "0.1.0"
