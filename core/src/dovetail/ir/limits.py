"""How deep and how large a model that is read may be.

Limits stand far above what real models need; they stop files that would end in a stack overflow or never end.
"""

from __future__ import annotations

__all__ = ["BRACKET_DEPTH", "EXPANDED_BYTES", "EXPANDED_NODES", "GRAPH_DEPTH", "SPARSE_BYTES"]

GRAPH_DEPTH = 24
"""Bodies within bodies. Each takes three of the 100 message levels that protobuf reads."""

BRACKET_DEPTH = 200
"""Brackets within brackets in ONNX text, whose parser is recursive; a body takes two."""

EXPANDED_NODES = 250_000
"""Nodes of the model with all local functions inlined."""

EXPANDED_BYTES = 1 << 30
"""Bytes of the same without the weights of the main graph; a protobuf message ends at 2 GiB."""

SPARSE_BYTES = 1 << 28
"""Bytes of one sparse tensor with its zeros."""
