"""The plugin API in one import: hooks, the registry, and the contracts that plugins implement. See docs/plugins.md.

Names are imported on first use, as `__init__.pyi` lists them, and none of them imports onnx.
"""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin.renamed import NAMES

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, NAMES)
