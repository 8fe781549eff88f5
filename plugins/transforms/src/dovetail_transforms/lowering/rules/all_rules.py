"""The rules that `table.yaml` names, by name.

Each writes its nodes for the version right before the one that it replaces; they are lowered further like any others.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail_transforms.lowering.rules import (
    activations,
    axes,
    constants,
    integers,
    normalisation,
    pooling,
    quantisation,
    recurrent,
    resizing,
    selection,
    shapes,
    softmax,
    splitting,
)
from dovetail_transforms.rewriting import Rewrite

_MODULES = (
    activations, axes, constants, integers, normalisation, pooling, quantisation, recurrent, resizing, selection,
    shapes, softmax, splitting,
)  # fmt: skip
RULES: Mapping[str, Rewrite] = {rule.name: rule for module in _MODULES for rule in module.RULES}
