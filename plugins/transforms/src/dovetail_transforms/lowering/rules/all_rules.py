"""The rules that `table.yaml` names, by name.

Each emits nodes for the version right before the replaced one; they are lowered further like any others.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail_transforms.lowering.rules import elementwise, layers, quantization, shapes, windows
from dovetail_transforms.rewriting import Rewrite

_MODULES = (elementwise, layers, quantization, shapes, windows)
RULES: Mapping[str, Rewrite] = {rule.name: rule for module in _MODULES for rule in module.RULES}
