"""Limits on depth and size of models that are read.

They are far above what real models need, and stop files that would overflow the stack or expand without end.
"""

from __future__ import annotations

GRAPH_DEPTH = 24
"""Nesting of bodies. Each takes three of the 100 message levels that protobuf reads."""

BRACKET_DEPTH = 200
"""Nesting of brackets in ONNX text, whose parser is recursive; a body takes two."""

EXPANDED_NODES = 250_000
"""Nodes of the model with all local functions inlined."""

EXPANDED_BYTES = 1 << 30
"""Bytes of that model without the weights of the main graph; a protobuf message is limited to 2 GiB."""

SPARSE_BYTES = 1 << 28
"""Bytes of one sparse tensor when dense."""
